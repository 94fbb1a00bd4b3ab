"""What handing a batch over from a worker would cost, where no worker hands one over.

A loop that loads in the training process shows nothing of it, and a prediction for workers without
it promises what no worker can keep. Measured once, on one batch: what is no tensor is pickled in a
worker and unpickled in the trainer; tensors travel in shared memory. A millisecond is what the pipe
and the wake-up cost whatever the batch is (docs/profiler.md).
"""

from __future__ import annotations

import io
import pickle
import time
from typing import Any

LEAST_NS = 1_000_000


class _Pickler(pickle.Pickler):
    """Leaves tensors out."""

    def persistent_id(self, obj: Any) -> str | None:
        return "tensor" if hasattr(obj, "is_cuda") else None


class _Unpickler(pickle.Unpickler):
    """Puts nothing where a tensor was."""

    def persistent_load(self, pid: Any) -> None:
        return


def hand_over_cost(batch: Any) -> dict[str, int]:
    """Nanoseconds: `pickling_ns` in the worker, `hand_over_ns` in the trainer; {} if it cannot."""
    packed = io.BytesIO()
    start = time.perf_counter_ns()
    try:
        _Pickler(packed, pickle.HIGHEST_PROTOCOL).dump(batch)
        middle = time.perf_counter_ns()
        packed.seek(0)
        _Unpickler(packed).load()
    except Exception:  # noqa: BLE001 - a batch that cannot be pickled cannot come from a worker
        return {}
    end = time.perf_counter_ns()
    return {"pickling_ns": middle - start, "hand_over_ns": LEAST_NS + end - middle}
