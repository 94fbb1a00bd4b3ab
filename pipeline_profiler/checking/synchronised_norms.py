"""SyncBatchNorm on a CPU, in a process of its own: torch's runs on accelerators alone.

Two ranks with gloo are to make the steps of the user's training. The arithmetic is torch's: mean
and variance over the batches of all ranks, gradients through them, running statistics of all.
"""

from __future__ import annotations

from typing import Any


def synchronise_on_cpu() -> None:
    """Let SyncBatchNorm take tensors of the CPU, in this process and until it ends."""
    from torch import nn

    norms: Any = nn.SyncBatchNorm
    wrapper: Any = nn.parallel.DistributedDataParallel

    on_device = norms.forward

    def forward(norm: Any, inputs: Any) -> Any:
        return on_device(norm, inputs) if inputs.device.type != "cpu" else _normalised(norm, inputs)

    norms.forward = forward
    # All that it does is to refuse the CPU.
    wrapper._passing_sync_batchnorm_handle = lambda *_: None


def _normalised(norm: Any, inputs: Any) -> Any:
    from torch.nn.functional import batch_norm

    by_batch = norm.training or norm.running_mean is None
    if not by_batch:
        mean, variance = norm.running_mean, norm.running_var
        return batch_norm(inputs, mean, variance, norm.weight, norm.bias, False, 0.0, norm.eps)
    mean, variance, count = _moments(norm, inputs)
    if norm.training and norm.running_mean is not None:
        _follow(norm, mean.detach(), (variance * count / (count - 1)).detach())
    shape = (1, -1) + (1,) * (inputs.dim() - 2)
    scaled = (inputs - mean.view(shape)) / (variance.view(shape) + norm.eps).sqrt()
    return (
        scaled if norm.weight is None else scaled * norm.weight.view(shape) + norm.bias.view(shape)
    )


def _moments(norm: Any, inputs: Any) -> tuple[Any, Any, Any]:
    """Return mean and variance of each channel over all ranks, and the values behind them."""
    import torch

    channels = inputs.transpose(0, 1).flatten(1).double()
    count = torch.full_like(channels[:, :1], channels.shape[1]).squeeze(1)
    sums = torch.stack([channels.sum(1), (channels**2).sum(1), count])
    total, squares, count = _sum_over_ranks(sums, norm.process_group)
    mean = total / count
    variance = (squares / count - mean**2).clamp_min(0)
    return mean.to(inputs.dtype), variance.to(inputs.dtype), count.to(inputs.dtype)


def _sum_over_ranks(values: Any, group: Any) -> Any:
    """Return the sum over all ranks; its gradient is that of all of them, too."""
    import torch
    from torch import distributed

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Any) -> Any:
            total = given.clone()
            distributed.all_reduce(total, group=group)
            return total

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return Sum.forward(ctx, gradient)

    return Sum.apply(values)  # type: ignore[no-untyped-call]


def _follow(norm: Any, mean: Any, variance: Any) -> None:
    """Move the running statistics towards those of a batch."""
    import torch

    with torch.no_grad():
        norm.num_batches_tracked.add_(1)
        kept = norm.momentum
        newest = 1 / float(norm.num_batches_tracked) if kept is None else kept
        norm.running_mean.lerp_(mean, newest)
        norm.running_var.lerp_(variance, newest)
