"""The DataLoader adapter in every mode; structure is asserted, never a time."""

import gc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

from pipeline_profiler import ProfileError, Recorder, stage
from pipeline_profiler.profiling.adapters import torch_loader
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.measure.arms import Bench, Look, look_along
from pipeline_profiler.profiling.record.plan import idle_workers
from pipeline_profiler.profiling.record.session import MAIN, Run
from tests.pipeline_profiler.fakes import MS

pytestmark = pytest.mark.slow


class Plain(Dataset[Any]):
    def __init__(self, n: int = 24, folder: str | None = None) -> None:
        self.n = n
        self.transform = Double()
        self.samples = [(f"/data/{i}.jpg", 0) for i in range(n)]
        self.folder = folder

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if self.folder:
            with open(os.path.join(self.folder, "x.bin"), "rb") as file:
                file.read()
        with stage("augment"):
            x = torch.tensor([float(i)])
        return self.transform(x)


class Double:
    def __call__(self, x: Any) -> Any:
        return 2 * x


class Batched(Plain):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [torch.tensor([2.0 * i]) for i in indices]


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = torch.utils.data.get_worker_info()
        mine = range(0 if info is None else info.id, 12, 1 if info is None else info.num_workers)
        for i in mine:
            yield {"path": f"shard/{i}", "x": torch.tensor([float(i)])}


class Broken(Plain):
    def __getitem__(self, i: int) -> Any:
        if i == 13:
            raise ValueError("sample 13 cannot be decoded")
        return torch.zeros(1)


class ByHand(BatchSampler):
    def __iter__(self) -> Iterator[list[int]]:
        yield from ([0, 1, 2], [5, 4], [23])

    def __len__(self) -> int:
        return 3


def keep(rows: list[Any]) -> list[Any]:
    return rows


def watched(loader: Any, epochs: int = 1, stacks: bool = False) -> tuple[list[Any], Run]:
    rec = Recorder()
    rec.sample_stacks = stacks or rec.sample_stacks
    batches = [batch for _ in range(epochs) for batch in rec.watch(loader)]
    return batches, rec.session().runs[0]


def values(batches: list[Any]) -> list[float]:
    return [float(v) for batch in batches for v in np.ravel(batch)]


MODES = [(0, None), (2, "fork"), (1, "spawn")]


@pytest.mark.parametrize(("workers", "context"), MODES)
def test_batches_are_the_users_own_and_traces_travel_with_them(
    workers: int, context: str | None
) -> None:
    loader = DataLoader(Plain(), 4, num_workers=workers, multiprocessing_context=context)
    spawned = context == "spawn"
    batches, run = watched(loader, stacks=spawned)  # a spawned worker survives its own timer
    gc.collect()  # a worker that a signal killed makes the iterator's end raise
    assert run.notes == []
    assert values(batches) == [2.0 * i for i in range(24)]
    made = Window.of(run).batches
    assert made.batch.tolist() == list(range(6))
    assert made.samples.tolist() == [4] * 6
    assert set(made.worker.tolist()) == (set(range(workers)) or {MAIN})
    assert {"augment", "transform", "collate", "getitem"} <= set(made.stages)
    inside = sum(made.stages.values())
    assert np.all(inside <= made.fetch)
    assert loader.dataset.transform.__class__ is Double  # the hooks are gone again


@pytest.mark.parametrize("workers", [0, 2])
def test_getitems_custom_collate_and_batch_sampler(workers: int) -> None:
    sampler = ByHand(SequentialSampler(range(24)), 3, False)
    loader = DataLoader(Batched(), batch_sampler=sampler, collate_fn=keep, num_workers=workers)
    batches, run = watched(loader)
    assert values(batches) == [0, 2, 4, 10, 8, 46]
    assert Window.of(run).batches.samples.tolist() == [3, 2, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_keeps_its_keys(workers: int) -> None:
    batches, run = watched(DataLoader(Streamed(), 3, num_workers=workers))
    assert sorted(float(v) for b in batches for v in b["x"].ravel()) == [
        float(i) for i in range(12)
    ]
    assert all(str(key).startswith("shard/") for key in run.slow_keys)
    assert Window.of(run).batches.samples.tolist() == [3] * 4


def test_persistent_workers_are_kept_over_epochs() -> None:
    loader = DataLoader(Plain(), 4, num_workers=2, persistent_workers=True)
    rec = Recorder()
    seen = [float(b[0]) for _ in range(3) for b in rec.watch(loader)]
    run = rec.session().runs[0]
    assert seen == [8.0 * i for i in range(6)] * 3
    assert len(Window.of(run).first_batch_ns) == 3


def test_batches_out_of_order_keep_their_traces_and_single_samples_are_batches() -> None:
    loader = DataLoader(Plain(40), 4, num_workers=2, in_order=False)
    batches, run = watched(loader)
    assert sorted(values(batches)) == [2.0 * i for i in range(40)]
    assert [float(b[0]) // 8 for b in batches] == [int(key) // 4 for key in run.slow_keys]
    batches, run = watched(DataLoader(Plain(), batch_size=None, num_workers=2))
    assert values(batches) == [2.0 * i for i in range(24)]
    assert len(run) == 24


def test_reading_is_seen_without_touching_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(1000))
    _, run = watched(DataLoader(Plain(folder=str(tmp_path)), 4, num_workers=1))
    made = Window.of(run).batches
    assert np.all(made.stages["read"] > 0)
    assert int(made.read_chars.sum()) >= 24 * 1000 or int(made.read_chars[0]) == -1


def test_worker_errors_keep_their_traceback_and_the_recorded_batches() -> None:
    rec = Recorder()
    with pytest.raises(ValueError, match="sample 13 cannot be decoded"):
        list(rec.watch(DataLoader(Broken(), 4, num_workers=1)))
    run = rec.session().runs[0]
    assert len(Window.of(run).whole.steps.batch) == 3
    assert "sample 13 cannot be decoded" in run.notes[0]
    assert "in DataLoader worker process 0" in run.notes[0]


def test_paths_are_found_through_subsets() -> None:
    subset = torch.utils.data.Subset(Plain(), [5, 7, 9])
    assert torch_loader.path_of(DataLoader(subset), 1) == "/data/7.jpg"
    assert torch_loader.path_of(DataLoader(Plain()), 3) == "/data/3.jpg"
    assert torch_loader.path_of(DataLoader([1, 2]), 1) == "index 1"


def test_rebuilding_changes_one_setting_and_keeps_the_rest() -> None:
    loader = DataLoader(Plain(), 4, num_workers=1, collate_fn=keep, drop_last=True, shuffle=True)
    new = torch_loader.rebuild(loader, {"workers": 9, "prefetch": 5, "persistent": True})
    assert (new.num_workers, new.prefetch_factor, new.persistent_workers) == (9, 5, True)
    assert new.collate_fn is keep
    assert new.batch_sampler is loader.batch_sampler
    assert torch_loader.rebuild(loader, {"batch_size": 8}).batch_size == 8
    assert torch_loader.rebuild(loader, {"workers": 0}).prefetch_factor is None
    own = DataLoader(Plain(), batch_sampler=ByHand(SequentialSampler(range(24)), 3, False))
    with pytest.raises(ProfileError, match="your own batch_sampler"):
        torch_loader.rebuild(own, {"batch_size": 8})
    batches = [torch.zeros(2, 3), torch.ones(2, 3)]  # one worker hands out what lies ready
    handed = list(torch_loader.kept_loader(DataLoader(range(4)), batches, 5))  # type: ignore[arg-type]
    assert [float(batch[0, 0]) for batch in handed] == [0, 1, 0, 1, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pinned_batches_arrive_pinned() -> None:
    batches, run = watched(DataLoader(Plain(), 4, num_workers=2, pin_memory=True))
    assert all(batch.is_pinned() for batch in batches)
    assert len(run) == 6


def test_a_loader_in_order_begins_anywhere_once() -> None:
    loader = DataLoader(Plain(), 4)
    moved = torch_loader.from_batch(loader, 2)
    assert moved is not None
    assert [int(batch[0]) // 2 for batch in moved] == [8, 12, 16, 20]
    assert [int(batch[0]) // 2 for batch in moved] == [0, 4, 8, 12, 16, 20]
    assert [int(batch[0]) // 2 for batch in loader] == [0, 4, 8, 12, 16, 20]
    assert len(moved) == len(loader)
    assert torch_loader.from_batch(DataLoader(Plain(), 4, shuffle=True), 2) is None


@pytest.mark.parametrize("workers", [0, 1])
def test_the_sampler_is_timed_where_no_worker_loads_too(workers: int) -> None:
    rec = Recorder()
    loader = DataLoader(Plain(), 3, sampler=SequentialSampler(range(24)), num_workers=workers)
    assert len(list(rec.watch(loader))) == 8
    drawn = Window.of(rec.session().runs[0]).whole.spans("sampler")
    assert sorted(drawn["batch"]) == list(range(8)) if workers == 0 else len(drawn["batch"])


class Dealt(IterableDataset[int]):
    """A stream whose workers have so many samples each."""

    def __init__(self, samples: tuple[int, ...]) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        return iter(range(self.samples[info.id]))


def look_at(samples: tuple[int, ...], seconds: float) -> Look:
    """The look along such a stream with two workers; the clock moves on when it is read."""
    loader = DataLoader(Dealt(samples), 2, num_workers=2)
    ticks = itertools.count(0, int(MS))
    found = look_along(Bench(lambda: loader, print, lambda: next(ticks)), seconds, 20 * MS)
    assert found is not None
    return found


def test_a_look_along_a_stream_sees_which_worker_has_nothing_more_and_goes_on_for_it() -> None:
    uneven = look_at((60, 20), 60.0)
    assert (uneven.steps, uneven.delivered) == (40, {"0": 40, "1": 20})
    assert idle_workers(uneven.delivered, uneven.steps) == {"1": 20}
    cut, cut_even = look_at((1000, 2), 0.15), look_at((1000, 1000), 0.15)
    assert cut.steps > 2 * cut_even.steps
    assert idle_workers(cut.delivered, cut.steps) == {"1": cut.delivered["1"]}
    assert not idle_workers(cut_even.delivered, cut_even.steps)
