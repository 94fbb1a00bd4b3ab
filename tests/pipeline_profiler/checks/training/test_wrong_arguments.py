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
    "no sign": lambda: F.cosine_embedding_loss(X, Y, BITS),
    "pixels": lambda: F.binary_cross_entropy_with_logits(X, 255 * P),
    "two labels": lambda: F.cross_entropy(X, HOT + HOT.roll(1, 1)),
    "the blank": lambda: F.ctc_loss(LOGS, WORDS - 1, LENGTHS, LONG),
    "the anchor": lambda: F.triplet_margin_loss(X, X, Y),
}
RIGHT: dict[str, Any] = {
    "logarithm": lambda: F.kl_div(P.log(), Q, reduction="sum"),
    "signs": lambda: F.cosine_embedding_loss(X, Y, ONES),
    "bits": lambda: F.binary_cross_entropy(P, HOT),
    "a mask follows": lambda: F.binary_cross_entropy_with_logits(X, -HOT, reduction="none"),
    "a mixture": lambda: F.cross_entropy(X, 0.3 * HOT + 0.7 * HOT.roll(1, 0)),
    "padded words": lambda: F.ctc_loss(LOGS, PADDED, LENGTHS, LONG),
    "triplet": lambda: F.triplet_margin_loss(X, X + 0.1, Y),
}


@pytest.mark.parametrize(
    ("call", "count"), [*((c, 1) for c in WRONG.values()), *((c, 0) for c in RIGHT.values())],
    ids=[*WRONG, *RIGHT],
)  # fmt: skip
def test_a_wrong_argument_is_a_sentence(call: Any, count: int) -> None:
    rows = list[str]()
    with recording_mode(
        lambda: None, on_loss=lambda f, args, named, _: rows.append(
            wrong_argument(f.__name__, args, named))
    ):  # fmt: skip
        call()
    sentences = [row for row in rows if row]
    assert [text[-1] for text in sentences] == ["."] * count


def test_a_mask_that_keeps_only_padding_is_a_sentence() -> None:
    ids = PADDED.repeat(2, 1)
    padding = ids == 0
    assert "hides all tokens" in inverted_mask({"src_key_padding_mask": ~padding}, [ids])
    assert "hides all tokens" in inverted_mask({"attention_mask": padding.long()}, [ids])
    assert inverted_mask({"key_padding_mask": padding}, [ids]) == ""
    assert inverted_mask({"attention_mask": (~padding).float()}, [ids]) == ""
