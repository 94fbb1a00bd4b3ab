"""Label noise: what wrong labels do to the difference between two models, and when to allow for it.

Wrong labels that are independent of the models shrink every difference and blur the disagreement,
so a plan that ignores them promises power it does not have. For noise that leans towards confusable
classes there is no formula, only a bound on how far it can move a difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.errors import UsageError


@dataclass(frozen=True)
class NoiseRate:
    """A rate of wrong labels with its interval and where it comes from, in words."""

    rate: float
    low: float
    high: float
    source: str
    automatic: bool = False

    def check(self, classes: int) -> None:
        """Raise UsageError unless the rate leaves signal with this many classes."""
        if not 0 <= self.rate < (classes - 1) / classes:
            raise UsageError(
                f"A label-noise rate of {self.rate:g} leaves no signal with {classes} classes: "
                f"give a rate from 0 to below {(classes - 1) / classes:.3g}."
            )


def accepted_rate(
    given: float | NoiseRate | None,
    classes: int,
    predictions_differ: float | None,
    reasons: list[str],
) -> NoiseRate | None:
    """Return the rate to plan with, None for none; `reasons` gets the sentence that explains it."""
    if given is None:
        return None
    rate = given if isinstance(given, NoiseRate) else NoiseRate(given, given, given, "stated")
    rate.check(classes)
    # A rate that may be 0 would make a plan larger for noise that nobody has shown to be there.
    if rate.automatic and rate.low <= 0:
        reasons.append(
            f"Label noise: not used, because the interval of {rate.source} "
            f"({rate.low:.3f} to {rate.high:.3f}) includes 0."
        )
        return None
    # Models may disagree on more examples than the discordant ones: unknown counts as all.
    bound = noise_bound(rate.rate, 1.0 if predictions_differ is None else predictions_differ)
    reasons.append(
        f"Label noise: rate {rate.rate:.3f} ({rate.source}), taken as uniform and independent "
        f"of the models. If wrong labels lean towards confusable classes there is no formula: "
        f"they may shift a difference by up to {bound:.3f}, and a difference below that is not "
        "guaranteed under class-dependent noise."
    )
    return rate


def noisy_difference(
    difference: float, discordant: float, eta: float, classes: int, both_wrong: float
) -> tuple[float, float]:
    """Return the difference and the discordant share as they appear under wrong labels.

    A share `eta` of labels is replaced by another class, each as likely, whatever the models say:
    d' = d (1 - eta K/(K-1)); psi' = psi (1 - eta (K-2)/(K-1)) + 2 r eta/(K-1). `both_wrong` is r,
    the share on which both models are wrong and differ.
    """
    if classes < 2:
        raise UsageError(f"Label noise needs at least 2 classes, and the set has {classes}.")
    if not 0 <= eta < (classes - 1) / classes:
        raise UsageError(
            f"A label-noise rate of {eta:g} leaves no signal with {classes} classes: give a rate "
            f"below {(classes - 1) / classes:.3g}."
        )
    # A label moves with chance eta to one of K - 1 others, so an answer that was right stays right
    # with chance 1 - eta and one that was wrong becomes right with chance eta/(K - 1): the
    # difference shrinks by their gap. Examples on which both models are wrong, and differ, become
    # discordant when the new label is what one of the two said.
    others = classes - 1
    smaller = difference * (1 - eta * classes / others)
    return smaller, discordant * (1 - eta * (classes - 2) / others) + 2 * both_wrong * eta / others


def noise_bound(eta: float, predictions_differ: float) -> float:
    """Return 2 min(eta, share on which predictions differ): what any label noise may do to d."""
    return 2 * min(eta, predictions_differ)
