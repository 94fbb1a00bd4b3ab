"""Ranks of a distributed training: what a program says of them, and what each rank reads.

Each rank is read in this process, by parameters of the factory or by RANK and WORLD_SIZE.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import arrays_in, digest_of
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    set_epoch,
)
from pipeline_profiler.checks.loop_facts import RankFacts
from pipeline_profiler.checks.opened_files import listen
from pipeline_profiler.checks.user_code import (
    batches_of,
    plain_augmentation,
    seed_everything,
    user_place,
    user_places,
    users_code,
)
from pipeline_profiler.checks.user_source import site_of
from pipeline_profiler.profiling.measure.watchdog import is_own_code

SPEAKS_OF_RANKS = re.compile(
    r"WORLD_SIZE|LOCAL_RANK|[\"']RANK[\"']|get_rank|init_process_group|DistributedDataParallel"
    r"|DistributedSampler"
)
LAUNCHES_ITSELF = re.compile(r"\b(lightning|pytorch_lightning|accelerate|deepspeed|horovod|ray)\b")
BY_HAND = re.compile(r"\.grad\b.*(/|div|mul)")  # gradients that are divided after backward()
DEALT = r"(::|%|seed|range\(|slice|split|chunk|Sampler|Dataset|Loader|Subset)"
SPLITS = re.compile(  # what splits data by rank, or models
    rf"DistributedSampler|num_replicas|\bshard|num_shards|split_dataset|[Mm]esh|parallelize|\brpc\b"
    rf"|(?i:rank)\b.*{DEALT}|{DEALT}.*(?i:rank)\b|\w\[[^]\"']*(?i:rank)\b|[+*] *[\w.]*(?i:rank)\b"
)
WRAPS = re.compile(r"DistributedDataParallel|\bDDP\b|\bFSDP\b|FullySharded|fully_shard")
SEED_OF_RANK = re.compile(r"seed\w* *(=|\+=|\().*rank", re.IGNORECASE)
MOST_WRITTEN = 50
WRITERS = re.compile(  # code that opens files for its caller
    rf"^{re.escape(os.path.dirname(os.__file__))}/(?!site-packages)|^<|/pipeline_profiler/"
    r"|site-packages/(torch|numpy|pandas|PIL|matplotlib|safetensors)/"
)
RANK_TEST = re.compile(r"rank|master|main_proc|is_main", re.IGNORECASE)
Functions = Mapping[str, Callable[..., Any]]


def source_of(functions: Sequence[Callable[..., Any]]) -> str:
    """The text of the files of top-level functions, and of local functions alone."""
    texts = []
    for function in functions:
        place = sys.modules.get(function.__module__) if _is_top_level(function) else function
        with contextlib.suppress(OSError, TypeError):
            texts.append(inspect.getsource(place or function))
    return "\n".join(dict.fromkeys(texts))


def speaks_of_ranks(text: str) -> bool:
    """Return whether a program is written for ranks, and no library launches and seeds them."""
    return bool(SPEAKS_OF_RANKS.search(text)) and not LAUNCHES_ITSELF.search(text)


def has_ranks(functions: Sequence[Callable[..., Any]]) -> bool:
    """Whether the source speaks of ranks, or a function takes one as a parameter."""
    return any(rank_words(f) for f in functions) or bool(
        SPEAKS_OF_RANKS.search(source_of(functions))
    )


def script_text() -> str:
    """The text of the script that runs, and of the user's own modules."""
    return "\n".join(own_files().values())


def own_files() -> dict[str, str]:
    """The texts of the script that runs, and of the user's own modules, by path."""
    ours = ("pipeline_profiler", "preflight", "audit")
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] not in ours]
    files = {str(getattr(m, "__file__", None) or "<") for m in modules}
    files.add(sys.argv[0] or "<")  # Python takes the name of the script when it has ended
    own = [Path(f) for f in sorted(files) if is_own_code(f) and f.endswith(".py")]
    return {str(f): f.read_text("utf-8", "replace") for f in own if f.is_file()}


def reads_unsplit(text: str) -> bool:
    """Whether a program averages gradients over ranks, and no line splits data by rank."""
    code = re.sub(r"(?m)#.*|^\s*(from|import) .*", "", text)
    split = SPLITS.search(code) or LAUNCHES_ITSELF.search(text)
    return bool(WRAPS.search(code)) and "init_process_group(" in code and not split


def read_anew(functions: Functions) -> dict[str, Callable[..., Any]]:
    """The same functions of files that are imported again; local functions as they are."""
    names = dict.fromkeys(f.__module__ for f in functions.values() if _is_top_level(f))
    modules = {name: importlib.reload(sys.modules[name]) for name in names}
    return {
        key: getattr(modules[f.__module__], f.__name__) if _is_top_level(f) else f
        for key, f in functions.items()
    }


def _is_top_level(function: Callable[..., Any]) -> bool:
    name = getattr(function, "__qualname__", "<locals>")
    return "." not in name and getattr(function, "__module__", None) in sys.modules


def depends_on_rank(place: str) -> bool:
    """Return whether a line of the user's names a rank, or runs only if a rank is the right one."""
    if (site := site_of(place)) is None:
        return False
    line = site.at.lineno
    holders = site.around(line)
    texts = [site.lines[line - 1], *(site.code(n.test) for n in holders if isinstance(n, ast.If))]
    function = next((n for n in holders if isinstance(n, ast.FunctionDef)), None)
    if function is not None:
        leaves = (n for n in ast.walk(function) if isinstance(n, ast.If) and n.end_lineno < line)
        texts += [site.code(n.test) for n in leaves if isinstance(n.body[-1], ast.Return)]
        texts += map(site.code, function.decorator_list)
    return any(map(RANK_TEST.search, texts))


def seeded_by_rank() -> bool:
    """Return whether the calls of the user's that run now name a rank, or a seed of a rank."""
    for place in user_places():
        if depends_on_rank(place):
            return True
        if site := site_of(place):
            functions = [n for n in site.around(site.at.lineno) if isinstance(n, ast.FunctionDef)]
            scope = site.code(functions[-1]) if functions else "".join(site.lines)
            if SEED_OF_RANK.search(scope):
                return True
    return False


class RankWatch:
    """Records what a program does as one of several ranks, by hooks of torch."""

    def __init__(self) -> None:
        self.facts = RankFacts()
        self.inside: list[Any] = []  # models in DistributedDataParallel

    def hook(self, hooks: Any, torch: Any) -> None:
        """Put the hooks in."""
        hooks.wrap(torch.nn.parallel.DistributedDataParallel, "__init__", self._wrap)
        for name in ("all_reduce", "broadcast", "broadcast_object_list"):
            hooks.wrap(torch.distributed, name, functools.partial(self._call, name))
        hooks.wrap(torch, "save", self._save)
        hooks.undo.append(listen(self._open))

    def seed(self) -> None:
        """Note a seed of torch that the user's code sets."""
        if place := user_place():
            self.facts.seeded.append((place, seeded_by_rank()))

    def step(self, module: Any) -> None:
        """Note the module that a training step calls."""
        if any(module is inner for inner in self.inside):
            self.facts.bypassed = self.facts.bypassed or user_place()

    def _wrap(self, plain: Any, module: Any, inner: Any, *args: Any, **kwargs: Any) -> None:
        plain(module, inner, *args, **kwargs)
        self.facts.wrapped = True
        self.inside.append(inner)

    def _call(self, name: str, plain: Any, *args: Any, **kwargs: Any) -> Any:
        self.facts.collectives.append(name) if name not in self.facts.collectives else None
        return plain(*args, **kwargs)

    def _save(self, plain: Any, content: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | os.PathLike):
            self._open(os.fspath(file), "w")
        return plain(content, file, *args, **kwargs)

    def _open(self, name: str, mode: str) -> None:
        if not set(mode) & set("wax+") or len(self.facts.written) >= MOST_WRITTEN:
            return
        frame: Any = sys._getframe(1)
        while frame is not None and WRITERS.search(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None or not is_own_code(frame.f_code.co_filename):
            return
        places = list(user_places())
        if places and not name.startswith(("/dev/", "/proc/")):
            guarded = any(map(depends_on_rank, places))
            self.facts.written.append((places[0], Path(name).name, guarded))


@contextlib.contextmanager
def as_rank(rank: int) -> Iterator[None]:
    """Let this process be one of two ranks: its environment, and a group that holds it alone."""
    with environment(rank, TRIED_RANKS):
        if "torch" not in sys.modules:
            yield
            return
        import torch.distributed as dist

        opened, plain = not dist.is_initialized(), dist.init_process_group
        if opened:
            store = dist.HashStore()  # type: ignore[attr-defined]
            plain("gloo", store=store, rank=0, world_size=1)
        dist.init_process_group = lambda *_, **__: None
        try:
            yield
        finally:
            dist.init_process_group = plain
            if opened and dist.is_initialized():
                dist.destroy_process_group()


RANK_WORDS = ("rank", "process_index", "host", "host_id", "shard", "shard_index", "shard_id")
WORLD_WORDS = ("world_size", "num_replicas", "num_shards", "num_hosts", "process_count", "hosts")
ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
TRIED_RANKS, MOST_READ = 2, 20_000


@dataclass(frozen=True)
class RankShard:
    """The digests of the samples of one rank, in order, and the number of its batches."""

    digests: tuple[str, ...]
    batches: int


def rank_words(factory: Callable[..., Any]) -> tuple[str, str] | None:
    """The names of the factory's parameters for the rank and the number of ranks."""
    try:
        names = list(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return None
    rank = next((n for n in RANK_WORDS if n in names), None)
    world = next((n for n in WORLD_WORDS if n in names), None)
    return (rank, world) if rank and world else None


def rank_offers(factory: Callable[..., Any], rank: int, ranks: int) -> dict[str, int]:
    """The factory's parameters for its rank; empty where it takes none."""
    words = rank_words(factory)
    return {words[0]: rank, words[1]: ranks} if words else {}


def shard_of(
    subject: LoaderSubject, rank: int, ranks: int, seed: int | None = None, most: int = MOST_READ
) -> RankShard:
    """Return what `rank` of `ranks` reads in its first epoch, seeded with its number."""
    offers = rank_offers(subject.make_loader, rank, ranks)
    with environment(rank, ranks):
        seed_everything(subject.seed + (rank if seed is None else seed))
        with users_code("make_loader()"):
            loader = subject.make_loader(**offers | plain_augmentation(subject.make_loader))
        return read_shard(subject, loader, most)


def read_shard(subject: LoaderSubject, loader: Any, most: int = MOST_READ) -> RankShard:
    """The samples of one epoch of a loader, up to `most`."""
    set_epoch(loader, 0)
    digests: list[str] = []
    batches = 0
    for batch in batches_of(loader):
        digests += sample_digests(batch)
        batches += 1
        if len(digests) >= most or subject.time_is_short():
            break
    return RankShard(tuple(digests), batches)


def sample_digests(batch: Any) -> list[str]:
    """One digest for each sample of a batch, over all arrays that have it."""
    arrays = [np.asarray(a) for a in arrays_in(batch)]
    counts = [len(a) for a in arrays if a.ndim]
    if not counts:
        return [digest_of(batch)]
    size = max(set(counts), key=counts.count)
    parts = [a for a in arrays if a.ndim and len(a) == size]
    return [digest_of([part[i] for part in parts]) for i in range(size)]


def rank_environment(rank: int, ranks: int) -> dict[str, str]:
    """The environment variables of one rank, as `torchrun` sets them."""
    return {name: str(rank if "RANK" in name else ranks) for name in ENVIRONMENT}


@contextlib.contextmanager
def environment(rank: int, ranks: int) -> Iterator[None]:
    """Set the environment variables of one rank for the block."""
    values = rank_environment(rank, ranks)
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ |= values
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ |= before
