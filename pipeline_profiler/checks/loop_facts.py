"""What only the user's own loop shows: modes, epochs, clipping, gradients, the schedule's unit.

Recorded while `check-training -- train.py` runs the script; a training made of functions has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class LoopFacts:
    """Counts of what the loop did; a count of 0 says that it did not happen as far as it was seen.

    unmoded: modules with a mode (dropout, batch norm) that trained before the first evaluation and
    not after it. evaluated_in_train_mode: such modules that trained while the other loader was
    evaluated. told: epochs of a sampler that takes them, in the order of the iterations. clipped:
    (before, after) the optimizer's step. kept: steps that began with the gradients of the step
    before. scheduled: 'step', 'epoch', 'evaluation', 'by hand' or ''. rates: by optimizer step.
    places: lines of the user's file by what stands there.
    """

    steps: int = 0
    epochs: int = 0
    evaluations: int = 0
    after_evaluation: int = 0  # training steps that came after an evaluation
    modes: int = 0  # modules whose mode matters
    unmoded: tuple[str, ...] = ()
    evaluated_in_train_mode: tuple[str, ...] = ()
    told: list[int] = field(default_factory=list)
    clipped: tuple[int, int] = (0, 0)
    kept: int = 0
    scheduled: str = ""
    rates: list[float] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def unreached(self) -> list[str]:
        """What the run did not come to, in words."""
        return [
            *([] if self.steps else ["a step of an optimizer"]),
            *([] if self.evaluations else ["an evaluation"]),
            *([] if self.epochs > 1 or self.after_evaluation else ["a second epoch"]),
        ]
