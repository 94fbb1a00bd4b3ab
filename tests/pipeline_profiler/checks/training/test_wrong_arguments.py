"""Arguments of loss functions and masks: what is refused, and what is not."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from pipeline_profiler.checks.caught_tape import recording_mode  # noqa: E402
from pipeline_profiler.checks.wrong_arguments import inverted_mask, wrong_argument  # noqa: E402

X, Y = torch.randn(6, 4), torch.randn(6, 4)
P, Q = X.softmax(1), Y.softmax(1)
ONES, BITS = torch.tensor([1.0, -1, 1, 1, -1, 1]), torch.tensor([1.0, 0, 1, 1, 0, 1])
HOT = torch.eye(4)[[0, 1, 2, 3, 0, 1]]
LOGS, LENGTHS = torch.randn(9, 6, 4).log_softmax(2), torch.full((6,), 9)
WORDS, LONG = torch.randint(1, 4, (6, 3)), torch.full((6,), 3)
PADDED = torch.cat([WORDS, torch.zeros(6, 2, dtype=torch.long)], 1)

WRONG: dict[str, Any] = {
    "probabilities": lambda: F.kl_div(P, Q, reduction="sum"),
    "two logarithms": lambda: F.kl_div(P.log(), Q.log(), reduction="sum"),
    "no sign": lambda: F.cosine_embedding_loss(X, Y, BITS),
    "no order": lambda: F.margin_ranking_loss(X[:, 0], Y[:, 0], BITS),
    "pixels": lambda: F.binary_cross_entropy_with_logits(X, 255 * P),
    "two labels": lambda: F.cross_entropy(X, HOT + HOT.roll(1, 1)),
    "the blank": lambda: F.ctc_loss(LOGS, WORDS - 1, LENGTHS, LONG),
    "scores": lambda: F.ctc_loss(LOGS + 9, WORDS, LENGTHS, LONG),
    "the anchor": lambda: F.triplet_margin_loss(X, X, Y),
}
RIGHT: dict[str, Any] = {
    "logarithm": lambda: F.kl_div(P.log(), Q, reduction="sum"),
    "named logarithms": lambda: F.kl_div(P.log(), Q.log(), log_target=True, reduction="sum"),
    "signs": lambda: F.cosine_embedding_loss(X, Y, ONES),
    "bits": lambda: F.binary_cross_entropy(P, HOT),
    "a mask follows": lambda: F.binary_cross_entropy_with_logits(X, -HOT, reduction="none"),
    "a mixture": lambda: F.cross_entropy(X, 0.3 * HOT + 0.7 * HOT.roll(1, 0)),
    "classes": lambda: F.cross_entropy(X, torch.arange(6) % 4),
    "padded words": lambda: F.ctc_loss(LOGS, PADDED, LENGTHS, LONG),
    "triplet": lambda: F.triplet_margin_loss(X, X + 0.1, Y),
    "another loss": lambda: F.mse_loss(X, Y),
}


def found(call: Any) -> list[str]:
    """What is wrong with the calls of losses inside."""
    rows = list[str]()
    with recording_mode(
        lambda: None, on_loss=lambda f, args, named, _: rows.append(
            wrong_argument(f.__name__, args, named))
    ):  # fmt: skip
        call()
    return [row for row in rows if row]


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_a_sentence(call: Any) -> None:
    (sentence,) = found(call)
    assert sentence.endswith(".")


@pytest.mark.parametrize("call", RIGHT.values(), ids=RIGHT)
def test_a_right_argument_is_none(call: Any) -> None:
    assert found(call) == []


def test_a_mask_that_keeps_only_padding_is_a_sentence() -> None:
    ids = PADDED.repeat(2, 1)
    padding = ids == 0
    assert "hides all tokens" in inverted_mask({"src_key_padding_mask": ~padding}, [ids])
    assert "hides all tokens" in inverted_mask({"attention_mask": padding.long()}, [ids])
    for right in (
        {"key_padding_mask": padding}, {"attention_mask": (~padding).float()},
        {"key_padding_mask": torch.zeros_like(padding)}, {"key_padding_mask": None},
    ):  # fmt: skip
        assert inverted_mask(right, [ids]) == ""
    assert inverted_mask({"key_padding_mask": ~padding}, [ids + 1.0]) == ""
