"""Whether a loss compares examples with each other: then targets are not what outputs should be.

Asked of the loss alone, on drawn outputs; targets that are one tensor of torch only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline_profiler.checking.user_calls import UsersError

TURNED = 0.999  # cosine of two gradients
Loss = Callable[[Any, Any], Any]


def only_compares(loss: Loss, outputs: Any, targets: Any) -> bool:
    """Whether the loss sees of the labels only which are alike, as losses of embeddings do.

    Then other names for the same groups change nothing, and other groups do.
    """
    import torch

    if not isinstance(targets, torch.Tensor) or targets.ndim != 1:
        return False
    values, place = torch.unique(targets, return_inverse=True)
    drawn = torch.Generator().manual_seed(0)
    made = _drawn(outputs)
    others = values.roll(1)[place], targets[torch.randperm(len(targets), generator=drawn)]
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            own, renamed, regrouped = (_seeded(loss, made, t) for t in (targets, *others))
    except UsersError:
        return False
    near = 1e-5 * abs(own)
    return len(values) > 1 and abs(own - renamed) <= near < abs(own - regrouped)


def _seeded(loss: Loss, outputs: Any, targets: Any) -> float:
    import torch

    torch.manual_seed(0)
    return float(loss(outputs, targets))


def couples_outputs(loss: Loss, outputs: Any, targets: Any) -> bool:
    """Whether what it asks of an example turns with the outputs of another: ranking, survival.

    A root or a sum over all only scales it.
    """
    made = _drawn(outputs)
    other = made.clone()
    other[0] = 1 - other[0]
    return _turned(loss, (made, targets), (other, targets))


def couples_targets(loss: Loss, outputs: Any, targets: Any) -> bool:
    """Whether what it asks of an example turns with the target of another: contrast."""
    import torch

    if not isinstance(targets, torch.Tensor) or len(targets) < 3:
        return False
    other = targets.clone()
    other[0] = targets[1]
    made = _drawn(outputs)
    return _turned(loss, (made, targets), (made, other))


def _turned(loss: Loss, first: tuple[Any, Any], second: tuple[Any, Any]) -> bool:
    import torch

    one, two = (_gradient(loss, *pair) for pair in (first, second))
    if one is None or two is None or len(one) < 3:
        return False
    pair = one[1:].flatten(), two[1:].flatten()
    cosine = torch.nn.functional.cosine_similarity(*pair, dim=0)
    return all(bool(g.any()) for g in pair) and float(cosine) < TURNED


def _gradient(loss: Loss, outputs: Any, targets: Any) -> Any:
    import torch

    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        free = outputs.detach().clone().requires_grad_()
        torch.manual_seed(0)
        value = loss(free, targets)
        if not value.requires_grad or not bool(torch.isfinite(value)):
            return None
        return torch.autograd.grad(value, free, allow_unused=True)[0]


def _drawn(outputs: Any) -> Any:
    import torch

    drawn = torch.Generator().manual_seed(0)
    return torch.randn(outputs.shape, generator=drawn).to(outputs.device)
