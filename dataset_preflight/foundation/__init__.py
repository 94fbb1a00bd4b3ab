"""What both programs share: exits, output, progress, cores.

Standard library alone at module level, because the recorder in a user's training imports it.
"""
