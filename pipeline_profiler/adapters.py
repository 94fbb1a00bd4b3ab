"""The old name of what the documents printed: `pipeline_profiler.adapters.tf_data`.

`keras_callback` is imported from `pipeline_profiler` itself; loops that took it from here go on.
"""

import sys

from pipeline_profiler.profiling.adapters import tf_data

sys.modules[f"{__name__}.tf_data"] = tf_data
