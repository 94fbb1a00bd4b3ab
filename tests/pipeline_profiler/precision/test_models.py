"""The shipped networks are the published ones: parameter counts, shapes, what a block does.

Counts of the CIFAR adaptations: 11,173,962, 11,574,842 and 34,236,634 (published result tables of
CIFAR-10 model collections).
"""

from typing import Any

import pytest
import torch

from pipeline_profiler.precision.models import SHIPPED, block_class, dual_path

pytestmark = pytest.mark.slow


def parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet18", 11_173_962),
        ("dpn26", 11_574_842),
        ("dpn92", 34_236_634),
    ],
)
def test_published_counts_and_shapes(name: str, count: int) -> None:
    with torch.device("meta"):
        model = SHIPPED[name](10)
        assert parameters(model) == count
        assert tuple(model(torch.zeros(2, 3, 32, 32)).shape) == (2, 10)


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        # after each stage: 256+4*16, 512+5*32, 1024+21*24, 2048+4*128
        ("dpn92", [320, 672, 1528, 2560]),
        ("dpn26", [304, 608, 1096, 2432]),
    ],
)
def test_both_paths_grow_as_the_paper_says(name: str, channels: list[int]) -> None:
    seen: dict[int, int] = {}
    with torch.device("meta"):
        x = torch.zeros(1, 3, 32, 32)
        for layer in SHIPPED[name](9):
            x = layer(x)
            if isinstance(layer, block_class()):
                seen[x.shape[-1]] = x.shape[1]
    assert list(seen) == [32, 16, 8, 4]
    assert list(seen.values()) == channels


def test_a_dual_path_block_adds_to_one_path_and_appends_to_the_other() -> None:
    block = dual_path(272, 0, False)
    with torch.no_grad():
        for weight in block.body.parameters():
            weight.zero_()
    x = torch.rand(2, 272, 5, 5)
    made = block(x)
    assert tuple(made.shape) == (2, 288, 5, 5)
    assert torch.equal(made[:, :272], x)
    assert made[:, 272:].abs().max() == 0


def test_shipped_models_train_a_step_on_odd_sizes() -> None:
    for name in ("resnet18", "dpn26"):
        torch.manual_seed(0)
        model = SHIPPED[name](4)
        loss = torch.nn.functional.cross_entropy(
            model(torch.randn(2, 3, 24, 24)), torch.tensor([0, 3])
        )
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
