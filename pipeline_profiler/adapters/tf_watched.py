"""A watched tf.data.Dataset that is a tf.data.Dataset: Keras' fit takes nothing else for one.

Iterated eagerly, each epoch is recorded. In fit it is the dataset it wraps, as often as there are
epochs: fit draws its batches inside a compiled step, where no recorder sees them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def dress_dataset(recorder: Any, loader: Any) -> Any:
    """`loader` as a recorded dataset where it is one of tf.data's; else None."""
    module = sys.modules.get("tensorflow.python.data.ops.dataset_ops")
    if module is None or not isinstance(loader, module.DatasetV2):
        return None

    class WatchedDataset(module.DatasetV2):  # type: ignore[misc,name-defined]
        """The dataset, recorded where it is iterated eagerly."""

        def __init__(self) -> None:
            super().__init__(loader._variant_tensor)

        def __iter__(self) -> Iterator[Any]:
            """One epoch; inside a graph TensorFlow's own."""
            import tensorflow as tf

            plain: Iterator[Any] = super().__iter__()
            return (
                recorder.one_epoch(loader) if _in_user_code() and tf.executing_eagerly() else plain
            )

        def _inputs(self) -> list[Any]:
            return [loader]

        @property
        def element_spec(self) -> Any:
            """As the dataset's."""
            return loader.element_spec

    return WatchedDataset()


def _in_user_code() -> bool:
    """Whether no frame of Keras asks: what fit draws is handed to its compiled step."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("keras."):
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return True
