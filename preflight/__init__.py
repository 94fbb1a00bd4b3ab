"""What both programs are made of, `audit` and `pipeline-profiler`: it knows neither of them.

How a command ends and what it prints, its progress, the cores it may use. The standard library
alone at module level, because the recorder that lives in a user's training imports it.
"""
