"""Arguments of losses that their formula does not admit, and masks that hide the tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline_profiler.checks.batches import padding_of
from pipeline_profiler.checks.lazy import functional, torch

LEAST_OFF, ALIKE = 0.01, 0.5  # of a sum of probabilities; share of the rows
Arguments = Mapping[str, Any]
MASKS = ("key_padding_mask", "src_key_padding_mask", "attention_mask")


def inverted_mask(kwargs: Mapping[str, Any], rows: Sequence[Any]) -> str:
    """Return a sentence if a mask of attention hides the tokens of rows and keeps their padding.

    `rows`: tensors of a batch. In `attention_mask` 1 keeps a position; in the others True hides it.
    """
    for name in MASKS:
        mask = kwargs.get(name)
        if not isinstance(mask, torch.Tensor) or mask.ndim != 2:
            continue
        kept = mask > 0 if name == "attention_mask" else mask == 0
        for ids in rows:
            if ids.shape == kept.shape and not ids.is_floating_point():
                found = padding_of(ids)
                if found is not None and torch.equal(kept, found[1]):
                    return f"{name} hides all tokens, and keeps their padding ({found[0]})."
    return ""


def wrong_argument(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return what is wrong with the arguments of a loss, as a sentence; '' for nothing."""
    rule = RULES.get(name)
    if rule is None or kwargs.get("reduction") == "none":  # a mask may follow
        return ""
    try:
        bound = inspect.signature(getattr(functional, name)).bind(*args, **kwargs)
        bound.apply_defaults()
        with torch.no_grad():
            return rule(bound.arguments)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return ""


def _divergence(given: Arguments) -> str:
    if bool((given["input"] > 1e-6).any()):
        return "The input of kl_div must be log-probabilities, and it has values above 0."
    if not given["log_target"] and bool((given["target"] < -1e-6).any()):
        return (
            "The target of kl_div has values below 0: set log_target=True, or give probabilities."
        )
    return ""


def _signs(given: Arguments) -> str:
    values = given["target"].unique().tolist()
    if set(values) <= {-1, 1}:
        return ""
    return f"The target must be 1 or -1, and it has {', '.join(f'{v:g}' for v in values[:4])}."


def _shares(given: Arguments) -> str:
    low, high = float(given["target"].min()), float(given["target"].max())
    if 0 <= low <= high <= 1:
        return ""
    return f"The target must lie between 0 and 1, and it lies between {low:g} and {high:g}."


def _distribution(given: Arguments) -> str:
    target = given["target"]
    if not target.is_floating_point() or target.shape != given["input"].shape:
        return ""
    sums = target.sum(1 if target.ndim > 1 else 0)
    off = (sums - 1).abs() > LEAST_OFF
    if float(off.float().mean()) < ALIKE:
        return ""
    return (
        f"The target of cross_entropy is a distribution over classes, and it sums to "
        f"{float(sums[off].mean()):.3g}: several labels at a time need binary_cross_entropy."
    )


def _alignment(given: Arguments) -> str:
    targets, lengths = given["targets"], torch.as_tensor(given["target_lengths"])
    if targets.ndim == 2:
        rows = zip(targets, lengths.tolist(), strict=True)
        targets = torch.cat([row[:length] for row, length in rows])
    if bool((targets == given["blank"]).any()):
        return f"The targets of ctc_loss hold the blank, {given['blank']}."
    if bool((given["log_probs"] > 1e-6).any()):
        return "The input of ctc_loss must be log-probabilities, and it has values above 0."
    return ""


def _triplet(given: Arguments) -> str:
    anchor, positive = given["anchor"], given["positive"]
    if anchor.shape != positive.shape or anchor.ndim < 2:
        return ""
    same = (anchor == positive).flatten(1).all(1)
    if float(same.float().mean()) < ALIKE:
        return ""
    return "The positive of a triplet is the anchor itself: nothing draws a class together."


RULES: Mapping[str, Callable[[Arguments], str]] = {
    "kl_div": _divergence,
    "binary_cross_entropy": _shares,
    "binary_cross_entropy_with_logits": _shares,
    "cross_entropy": _distribution,
    "ctc_loss": _alignment,
    "triplet_margin_loss": _triplet,
    **dict.fromkeys(
        ("cosine_embedding_loss", "margin_ranking_loss", "hinge_embedding_loss",
         "soft_margin_loss"),
        _signs,
    ),
}  # fmt: skip
