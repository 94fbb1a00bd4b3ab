"""The `pipeline-profiler` command: parse options, call the library once, format the result.

In: arguments, and the user's own code named as FILE.py:FUNCTION. Out: a saved session, a report or
one JSON document on stdout, and an exit code; progress and warnings go to stderr. Cost: `--help`
takes milliseconds, as numpy and the frameworks are imported inside the commands that need them.
"""
