"""The tests, and how their processes start: compiled once, and with one thread of BLAS."""

import os
import sys

# A test starts Python hundreds of times: without compiled modules each start compiles them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Test processes share the cores: threads of BLAS spin while they wait for each other. Two needed
# 10.9 s of CPU where one needed 7.5, in as long. Before numpy is imported, which reads it.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
