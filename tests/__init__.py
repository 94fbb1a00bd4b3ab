"""The tests, and how their processes start: with modules compiled once, whoever started pytest."""

import os
import sys

# A test starts Python hundreds of times: without compiled modules each start compiles them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
