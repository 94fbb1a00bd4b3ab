"""What each of two ranks reads, and the random numbers it augments with; each rank a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline_profiler.checking.loader_subject import LoaderSubject, set_epoch
from pipeline_profiler.checking.rank_processes import (
    ask_ranks,
    grouped,
    has_ranks,
    launches_itself,
    read_anew,
)
from pipeline_profiler.checking.rank_shards import TRIED_RANKS, rank_offers, sample_digests
from pipeline_profiler.checking.stream_probe import SampleRecord, probed_loader
from pipeline_profiler.checking.user_calls import call_with
from pipeline_profiler.record.errors import ProfileError

ENOUGH, FEWEST = 64, 16


@dataclass(frozen=True)
class RankReading:
    """The beginning of an epoch of one rank: samples in order, and draws by stream and worker.

    samples: index or digest. draws: digests of the state before and after each of the first
    samples of a worker that drew from the stream.
    """

    samples: tuple[str, ...]
    draws: Mapping[tuple[str, int], tuple[tuple[str, str], ...]]


def read_ranks(subject: LoaderSubject) -> list[RankReading]:
    """Both ranks; ProfileError where ranks are nothing of the user's."""
    factory = [subject.make_loader]
    if subject.evaluation:
        raise ProfileError("Ranks may evaluate alike: ask for the loader of the training.")
    if not has_ranks(factory):
        raise ProfileError("Nothing of the loader speaks of ranks: it is one of a single process.")
    if launches_itself(factory):
        raise ProfileError("A library is named that shards and seeds the loader by itself.")
    return ask_ranks(lambda rank: _read(subject, rank), subject.seed)


def _read(subject: LoaderSubject, rank: int) -> RankReading:
    factory = read_anew({"make_loader": subject.make_loader})["make_loader"]
    offers = rank_offers(factory, rank, TRIED_RANKS)
    loader = grouped(lambda: call_with(factory, offers, "make_loader()"))
    torch = hasattr(loader, "_dataset_kind")
    set_epoch(loader, 0)
    samples: list[str] = []
    records: list[SampleRecord] = []
    for number, batch in enumerate(subject.iterate(probed_loader(loader) if torch else loader)):
        found, raw = batch if torch else ((), batch)
        records += found
        indexed = torch and loader._dataset_kind == 0
        samples += [str(r.index) for r in found] if indexed else sample_digests(raw)
        if len(samples) >= ENOUGH and number >= 2 * getattr(loader, "num_workers", 0):
            break
    return RankReading(tuple(samples), _draws(records))


def _draws(records: list[SampleRecord]) -> dict[tuple[str, int], tuple[tuple[str, str], ...]]:
    found: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for record in records:
        for name in record.used():
            pairs = found.setdefault((name, record.worker), [])
            pairs.append((record.before[name], record.after[name]))
    return {key: tuple(pairs[:8]) for key, pairs in found.items()}
