"""The shipped networks are the published ones: parameter counts, shapes, what a block does.

Counts: ResNet-18 at 1000 classes is torchvision's 11,689,512; DPN-92 at 1000 classes 37.67 M
trainable (timm's results table) and 37.8 M with the running statistics (Chen et al. 2017, table 1);
the CIFAR adaptations 11,173,962, 11,574,842 and 34,236,634 (published result tables of
CIFAR-10 model collections).
"""

from typing import Any

import pytest
import torch

from pipeline_profiler.precision.models import (
    SHIPPED,
    Shape,
    dpn26,
    dpn92,
    dual_path_class,
    resnet18,
)
from pipeline_profiler.profiling.record.session import ProfileError

pytestmark = pytest.mark.slow


def parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("make", "count", "side", "classes"),
    [
        (lambda: resnet18(1000, stem="imagenet"), 11_689_512, 224, 1000),
        (lambda: resnet18(10), 11_173_962, 32, 10),
        (lambda: dpn26(10), 11_574_842, 32, 10),
        (lambda: dpn92(10), 34_236_634, 32, 10),
        (lambda: dpn92(1000, stem="imagenet"), 37_668_392, 224, 1000),
    ],
)
def test_published_counts_and_shapes(make: Any, count: int, side: int, classes: int) -> None:
    with torch.device("meta"):
        model = make()
        assert parameters(model) == count
        assert tuple(model(torch.zeros(2, 3, side, side)).shape) == (2, classes)


def test_dpn92_has_the_papers_count_with_its_running_statistics() -> None:
    with torch.device("meta"):
        model = dpn92(1000, stem="imagenet")
    held = sum(b.numel() for n, b in model.named_buffers() if "running" in n)
    assert round((parameters(model) + held) / 1e6, 1) == 37.8


@pytest.mark.parametrize(
    ("make", "side", "sides", "channels"),
    [
        # after each stage: 256+5*16, 512+6*32, 1024+22*24, 2048+5*128
        (lambda: dpn92(9, "imagenet"), 224, [56, 28, 14, 7], [336, 704, 1552, 2688]),
        (lambda: dpn92(9), 32, [32, 16, 8, 4], [320, 672, 1528, 2560]),
        (lambda: dpn26(9), 32, [32, 16, 8, 4], [304, 608, 1096, 2432]),
    ],
)
def test_both_paths_grow_as_the_paper_says(
    make: Any, side: int, sides: list[int], channels: list[int]
) -> None:
    seen: dict[int, int] = {}
    with torch.device("meta"):
        x = torch.zeros(1, 3, side, side)
        for layer in make():
            x = layer(x)
            if isinstance(layer, dual_path_class()):
                seen[x.shape[-1]] = x.shape[1]
    assert list(seen) == sides
    assert list(seen.values()) == channels


def test_a_dual_path_block_adds_to_one_path_and_appends_to_the_other() -> None:
    block = dual_path_class()(Shape(72, 32, 64, 8, 1, first=False, before=True))
    with torch.no_grad():
        for weight in block.body.parameters():
            weight.zero_()
    x = torch.randn(2, 72, 5, 5)
    made = block(x)
    assert tuple(made.shape) == (2, 80, 5, 5)
    assert torch.equal(made[:, :72], x)
    assert made[:, 72:].abs().max() == 0


def test_shipped_models_train_a_step_on_odd_sizes() -> None:
    for name in ("resnet18", "dpn26"):
        torch.manual_seed(0)
        model = SHIPPED[name](4)
        loss = torch.nn.functional.cross_entropy(
            model(torch.randn(2, 3, 24, 24)), torch.tensor([0, 3])
        )
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())


def test_an_unknown_stem_names_the_known_ones() -> None:
    with pytest.raises(ProfileError, match="'cifar' or 'imagenet'"):
        resnet18(10, stem="mnist")
