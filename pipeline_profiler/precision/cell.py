"""What a sweep combines: a cell (model, batch size, precision, loss scale) and a shared recipe.

Everything that changes between two rows of the table is in the cell; everything that must not
change is in the recipe. Plain frozen values, so that a cell can be a key and a saved one can be
read without any framework.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_profiler.profiling.record.arm import Arm

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
PRECISION_NAMES = {"fp32": "FP32", "tf32": "TF32", "fp16": "FP16", "bf16": "BF16"}
DYNAMIC = "dynamic"
OWN_OPTIMIZER = "of make_step"  # in a recipe: the user's own, whose rate is not known

# The arms that a sweep times, as saved sessions name them: the step on batches that
# already lie on the device, the same step fed by the loader, and the loader with no step at all.
RESIDENT, WARM, LOADER_ONLY = Arm.RESIDENT, Arm.WARM, "L"


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: which model, at which batch size, precision and loss scale.

    `loss_scale` is "" without AMP scaling, "dynamic", or a number as text.
    """

    model: str
    batch_size: int
    precision: str
    loss_scale: str = ""

    @property
    def label(self) -> str:
        """'resnet18 FP16 x64 scale 128', for progress lines."""
        scale = f" scale {self.loss_scale}" if self.loss_scale else ""
        name = PRECISION_NAMES.get(self.precision, self.precision)
        return f"{self.model} {name} x{self.batch_size}{scale}"

    @property
    def name(self) -> str:
        """'FP16 (scale 128)', for sentences; a dynamic scale is the normal case and not named."""
        return name_precision(self.precision, self.loss_scale)

    @property
    def source(self) -> tuple[str, int]:
        """Model and batch size: the cells of one data source."""
        return self.model, self.batch_size


def name_precision(precision: str, loss_scale: str = "") -> str:
    """'BF16', 'FP16 (scale 128)'; an unknown precision keeps its own spelling."""
    scale = f" (scale {loss_scale})" if loss_scale not in ("", DYNAMIC) else ""
    return PRECISION_NAMES.get(precision, precision) + scale


@dataclass(frozen=True)
class Recipe:
    """What all cells share: optimizer and its rate, memory format, compilation, seed."""

    optimizer: str = "sgd"
    lr: float = 0.01
    channels_last: bool = False
    compile: bool = False
    seed: int = 0
