"""SyncBatchNorm on a CPU gives what torch's batch norm gives for the batches of all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from torch import distributed

    from pipeline_profiler.checking.synchronised_norms import synchronise_on_cpu

    # What is changed for a process of its own is put back behind this test.
    wrapped, name = torch.nn.parallel.DistributedDataParallel, "_passing_sync_batchnorm_handle"
    monkeypatch.setattr(torch.nn.SyncBatchNorm, "forward", torch.nn.SyncBatchNorm.forward)
    monkeypatch.setattr(wrapped, name, getattr(wrapped, name))
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    synchronise_on_cpu()
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False},
                                     {"track_running_stats": False}], ids=str)  # fmt: skip
def test_values_gradients_and_statistics_are_those_of_torch(
    one_rank: None, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    plain, synced = torch.nn.BatchNorm2d(3, **options), torch.nn.SyncBatchNorm(3, **options)
    batches = [torch.randn(4, 3, 5, 5) * 2 + 1 for _ in range(3)]
    for batch in batches:
        outputs = []
        for norm in (plain, synced):
            given = batch.clone().requires_grad_()
            made = norm(given)
            (made**3).sum().backward()
            outputs.append((made.detach(), given.grad))
        for one, other in zip(*outputs, strict=True):
            assert torch.allclose(one, other, atol=1e-4)
    for name, value in plain.state_dict().items():
        assert torch.allclose(value.float(), synced.state_dict()[name].float(), atol=1e-5), name
    assert torch.allclose(plain.eval()(batches[0]), synced.eval()(batches[0]), atol=1e-5)
