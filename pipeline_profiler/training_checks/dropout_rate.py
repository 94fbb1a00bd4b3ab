"""TRAIN027: dropout that takes almost everything, or the outputs themselves."""

from __future__ import annotations

from typing import Any

from pipeline_profiler.checking.check import (
    Answer,
    Check,
    Example,
    passed,
    wrong,
)
from pipeline_profiler.checking.keras_subject import KerasSubject
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
    mode and none in eval mode (real outputs are never exactly zero by chance), or where dropout
    called as a function acts in eval mode. Exact.

    ## What to do
    In torch the rate is what is *dropped*: use 0.1 to 0.5, before the last layer.

    ## Limits
    Dropout that stays on by design (Monte Carlo dropout) fails: skip this check there.
    """

    code = "TRAIN027"
    name = "dropout"

    def run(self, subject: TrainingSubject) -> Answer:
        """Rates, then zeros in the outputs."""
        import torch

        training = subject.fresh()
        always = _active_in_eval_mode(subject, training)
        if always:
            return wrong(
                f"{always} is called as a function and drops in eval mode as well.",
                ["functional.dropout() without training=self.training"],
                "Pass training=self.training, or use nn.Dropout.",
                function=always,
            )
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

    def run_keras(self, subject: KerasSubject) -> Answer:
        """Rates, then zeros in the outputs."""
        layers = subject.settings.model._flatten_layers()
        rates = {x.name: float(x.rate) for x in layers if "Dropout" in type(x).__name__}
        high = {name: rate for name, rate in rates.items() if rate > MOST}
        if high:
            name, rate = next(iter(high.items()))
            text, cause = f"{name} drops {rate:.0%} of its input.", "the share to keep was given"
            return _failed(text, cause, {"rates": high})
        training, inputs = subject.fresh(), subject.batches[0][0]
        zeros = [float((subject.outputs(training, inputs, m) == 0).mean()) for m in (True, False)]
        if zeros[0] > 0.02 and zeros[1] == 0:
            text = f"{zeros[0]:.0%} of the outputs are exactly zero in train mode."
            return _failed(text, "dropout after the last layer", {"zeros": zeros})
        return passed(f"{len(rates)} dropout layers of at most {max(rates.values(), default=0):g}.")

    @staticmethod
    def _with(rate: float, last: bool) -> Any:
        from torch import nn

        model = toy_net(nn.Dropout(rate)) if last else nn.Sequential(nn.Dropout(rate), toy_net())
        return toy_training(model)

    @staticmethod
    def _function(follows: bool) -> Any:
        from torch import nn
        from torch.nn import functional

        class Dropping(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = toy_net()

            def forward(self, pixels: Any) -> Any:
                dropped = functional.dropout(pixels, 0.2, self.training if follows else True)
                return self.net(dropped)

        return toy_training(Dropping())

    PLANTED = (
        Example("a function that is always on", lambda: DropoutRate._function(False)),
        Example("0.9", lambda: DropoutRate._with(0.9, False)),
        Example("on the outputs", lambda: DropoutRate._with(0.3, True)),
    )
    HEALTHY = (
        Example("none", toy_training),
        Example("a function that follows the mode", lambda: DropoutRate._function(True)),
        Example("0.3", lambda: DropoutRate._with(0.3, False)),
    )


def _active_in_eval_mode(subject: TrainingSubject, training: Any) -> str:
    """The name of a dropout function that acts in eval mode; '' for none."""
    import torch
    from torch.overrides import TorchFunctionMode

    found: list[str] = []

    class Listener(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = dict(zip(("input", "p", "training"), args, strict=False)) | (kwargs or {})
            name = getattr(func, "__name__", "")
            if "dropout" in name and given.get("training", True) and given.get("p", 0.5) > 0:
                found.append(name)
            return func(*args, **(kwargs or {}))

    inputs = subject.batches[0][1]  # taken before listening: taking them makes steps
    training.model.eval()
    with torch.no_grad(), Listener():
        subject.output(training, inputs)
    training.model.train()
    return found[0] if found else ""


def _failed(text: str, cause: str, numbers: dict[str, Any]) -> Answer:
    return wrong(
        text, [cause], "Use a rate of 0.1 to 0.5, and none after the last layer.", **numbers
    )
