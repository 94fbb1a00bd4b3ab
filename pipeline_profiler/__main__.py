"""`python -m pipeline_profiler`: the same commands as `pipeline-profiler`."""

import sys

from pipeline_profiler.cli.main import command_line

if __name__ == "__main__":
    sys.exit(command_line())
