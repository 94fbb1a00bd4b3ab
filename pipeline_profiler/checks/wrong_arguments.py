"""Arguments of losses that their formula does not admit, and masks that hide the tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline_profiler.checks.batches import padding_of
from pipeline_profiler.checks.lazy import functional, torch

Arguments = Mapping[str, Any]
MASKS = ("key_padding_mask", "src_key_padding_mask", "attention_mask")
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
SIGNED = ("cosine_embedding_loss", "margin_ranking_loss", "hinge_embedding_loss",
          "soft_margin_loss")  # fmt: skip


def _sums(target: Any) -> Any:
    return target.sum(1 if target.ndim > 1 else 0)


def _several_labels(given: Arguments) -> bool:
    """Whether half of the rows of a distribution do not sum to 1."""
    target = given["target"]
    if not target.is_floating_point() or target.shape != given["input"].shape:
        return False
    return bool(((_sums(target) - 1).abs() > 0.01).float().mean() >= 0.5)


def _holds_blank(given: Arguments) -> bool:
    targets, lengths = given["targets"], torch.as_tensor(given["target_lengths"])
    if targets.ndim == 2:
        targets = targets[torch.arange(targets.shape[1]) < lengths[:, None]]
    return bool((targets == given["blank"]).any())


def _same_pair(given: Arguments) -> bool:
    """Whether half of the anchors are their own positive."""
    anchor, positive = given["anchor"], given["positive"]
    if anchor.shape != positive.shape or anchor.ndim < 2:
        return False
    return bool((anchor == positive).flatten(1).all(1).float().mean() >= 0.5)


# (losses, whether the arguments are wrong, sentence)
ROWS: Sequence[tuple[tuple[str, ...], Callable[[Arguments], Any], str]] = (
    (("kl_div",), lambda a: (a["input"] > 1e-6).any(),
     "The input of kl_div must be log-probabilities, and it has values above 0."),
    (("kl_div",), lambda a: not a["log_target"] and (a["target"] < -1e-6).any(),
     "The target of kl_div has values below 0: set log_target=True, or give probabilities."),
    (SIGNED, lambda a: not set(a["target"].unique().tolist()) <= {-1, 1},
     "The target must be 1 or -1, and it lies between {low:g} and {high:g}."),
    (BINARY, lambda a: not 0 <= a["target"].min() <= a["target"].max() <= 1,
     "The target must lie between 0 and 1, and it lies between {low:g} and {high:g}."),
    (("cross_entropy",), _several_labels,
     "The target of cross_entropy is a distribution over classes, and it sums to {total:.3g}: "
     "several labels at a time need binary_cross_entropy."),
    (("ctc_loss",), _holds_blank, "The targets of ctc_loss hold the blank."),
    (("ctc_loss",), lambda a: (a["log_probs"] > 1e-6).any(),
     "The input of ctc_loss must be log-probabilities, and it has values above 0."),
    (("triplet_margin_loss",), _same_pair,
     "The positive of a triplet is the anchor itself: nothing draws a class together."),
)  # fmt: skip
RULES = frozenset(name for names, _, _ in ROWS for name in names)


def wrong_argument(name: str, args: Sequence[Any], kwargs: Arguments) -> str:
    """Return what is wrong with the arguments of a loss, as a sentence; '' for nothing."""
    if name not in RULES or kwargs.get("reduction") == "none":  # a mask may follow
        return ""
    try:
        bound = inspect.signature(getattr(functional, name)).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        with torch.no_grad():
            found = (text for names, wrong, text in ROWS if name in names and wrong(given))
            text = next(found, "")
            target = given.get("target") if text else None
            if target is None:
                return text
            low, high, total = target.min(), target.max(), _sums(target).float().mean()
        return text.format(low=low, high=high, total=total)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return ""


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
