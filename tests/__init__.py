"""The tests, and how their processes start: compiled once, and with one thread of BLAS."""

import gc
import os
import sys

# A test starts Python hundreds of times: without compiled modules each start compiles them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# As the commands do: of the 11 s of CPU to collect all tests, 4 were for garbage that is none.
gc.set_threshold(200_000, 20, 50)
# Test processes share the cores: threads of BLAS spin while they wait for each other. Two needed
# 10.9 s of CPU where one needed 7.5, in as long. Before numpy is imported, which reads it.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
