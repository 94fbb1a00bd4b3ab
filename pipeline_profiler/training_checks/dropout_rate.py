"""TRAIN027: dropout that takes almost everything, or the outputs themselves."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, wrong
from pipeline_profiler.checking.toy_trainings import toy_net, toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject

MOST = 0.8


class DropoutRate(Check):
    """The rates of dropout modules, and dropout after the last layer.

    ## What it does
    Reads the rate of every dropout module, and looks whether outputs in train mode hold zeros that
    they do not hold in eval mode.

    ## Why is this bad
    A rate of 0.9 that was meant as the share to keep leaves a tenth; dropout on logits makes
    classes vanish at random.

    ## How it decides
    Fails with a rate above 0.8, or where more than 2 % of the outputs are exactly zero in train
    mode and none in eval mode. Real outputs are never exactly zero by chance.

    ## What to do
    In torch the rate is what is *dropped*: use 0.1 to 0.5, before the last layer.

    ## Limits
    Dropout called as a function is seen only where it acts on the outputs.
    """

    code = "TRAIN027"
    name = "dropout"

    def run(self, subject: TrainingSubject) -> Answer:
        """Rates, then zeros in the outputs."""
        import torch

        training = subject.fresh()
        rates = {
            n: float(m.p)
            for n, m in training.model.named_modules()
            if "Dropout" in type(m).__name__ and hasattr(m, "p")
        }
        high = {n: p for n, p in rates.items() if p > MOST}
        if high:
            name, rate = next(iter(high.items()))
            return _failed(
                f"{name} drops {rate:.0%} of its input.",
                "the share to keep was given as the share to drop",
                {"rates": high},
            )
        zeros = []
        with torch.no_grad():
            for mode in (True, False):
                training.model.train(mode)
                outputs = subject.output(training, subject.batches[0][1])
                zeros.append(float((outputs == 0).float().mean()))
        if zeros[0] > 0.02 and zeros[1] == 0:
            return _failed(
                f"{zeros[0]:.0%} of the outputs are exactly zero in train mode, none in eval mode.",
                "dropout after the last layer",
                {"zeros": zeros},
            )
        return passed(
            f"{len(rates)} dropout modules, with rates of at most "
            f"{max(rates.values(), default=0.0):g}.",
            rates=rates,
        )

    @staticmethod
    def _with(rate: float, last: bool) -> Any:
        from torch import nn

        model = toy_net(nn.Dropout(rate)) if last else nn.Sequential(nn.Dropout(rate), toy_net())
        return toy_training(model)

    PLANTED = (
        Example("0.9", lambda: DropoutRate._with(0.9, False)),
        Example("on the outputs", lambda: DropoutRate._with(0.3, True)),
    )
    HEALTHY = (
        Example("none", toy_training),
        Example("0.3", lambda: DropoutRate._with(0.3, False)),
    )


def _failed(text: str, cause: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text, [cause], "Use a rate of 0.1 to 0.5, and none after the last layer.", **numbers
    )
