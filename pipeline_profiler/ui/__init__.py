"""Pages of the app for saved profiler sessions and checks.

In: session files named on the command line, found nearby or uploaded. Out: the report's sections
and charts that can be zoomed, drawn by Streamlit. `frames` holds what is drawn as plain tables and
knows no Streamlit; `sessions` decides which files may be opened. Cost: reading a session once.
"""
