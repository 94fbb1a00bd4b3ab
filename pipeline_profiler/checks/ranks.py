"""Two ranks of the user's code: what each reads, draws, learns and writes.

Shards come from one process (parameters of the factory, RANK and WORLD_SIZE, or `shard()`).
Everything else runs in forks that read the user's file again, with gloo between them, and only if
the source mentions ranks.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib
import inspect
import io
import itertools
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_profiler.checks.batches import arrays_in, digest_of
from pipeline_profiler.checks.check import AbsentError
from pipeline_profiler.checks.lazy import dist, functional, nn, torch
from pipeline_profiler.checks.loader_subject import (
    LoaderSubject,
    SampleRecord,
    probed_loader,
    set_epoch,
)
from pipeline_profiler.checks.runner import PATIENT
from pipeline_profiler.checks.user_code import (
    UsersError,
    batches_of,
    call_with,
    explain_error,
    plain_augmentation,
    seed_everything,
    users_code,
)
from pipeline_profiler.checks.user_training import (
    Training,
    batch_norms,
    call_evaluate,
    checked,
    made_from,
)
from pipeline_profiler.profiling.measure.watchdog import is_own_code
from pipeline_profiler.profiling.record.errors import ProfileError

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
SECONDS = 40.0  # of CPU or of waiting for each other, for both ranks
POLL_S = 0.2
Functions = Mapping[str, Callable[..., Any]]


def source_of(functions: Sequence[Callable[..., Any]]) -> str:
    """The text of the files of top-level functions, and of local functions alone."""
    texts = []
    for function in functions:
        place = sys.modules.get(function.__module__) if _is_top_level(function) else function
        with contextlib.suppress(OSError, TypeError):
            texts.append(inspect.getsource(place or function))
    return "\n".join(dict.fromkeys(texts))


def has_ranks(functions: Sequence[Callable[..., Any]]) -> bool:
    """Whether the source speaks of ranks, or a function takes one as a parameter."""
    return any(rank_words(f) for f in functions) or bool(
        SPEAKS_OF_RANKS.search(source_of(functions))
    )


def _of_one_process(what: str) -> ProfileError:
    """Why there are no ranks of this: the program has none, or only its script speaks of them."""
    if SPEAKS_OF_RANKS.search(script_text()):
        return ProfileError(
            f"Your script speaks of ranks, and its {what} was caught in one of them."
        )
    return AbsentError(f"Nothing of the {what} speaks of ranks: it is one of a single process.")


def script_text() -> str:
    """The text of the script that runs, and of the user's own modules."""
    return "\n".join(own_files().values())


def own_files() -> dict[str, str]:
    """The texts of the script that runs, and of the user's own modules, by path."""
    ours = ("pipeline_profiler", "preflight", "audit")
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] not in ours]
    files = {str(getattr(m, "__file__", None) or "<") for m in modules}
    own = [Path(f) for f in sorted(files) if is_own_code(f) and f.endswith(".py")]
    return {str(f): f.read_text("utf-8", "replace") for f in own if f.is_file()}


def reads_unsplit(text: str) -> bool:
    """Whether a program averages gradients over ranks, and no line splits data by rank."""
    code = re.sub(r"(?m)#.*|^\s*(from|import) .*", "", text)
    split = SPLITS.search(code) or LAUNCHES_ITSELF.search(text)
    return bool(WRAPS.search(code)) and "init_process_group(" in code and not split


def launches_itself(functions: Sequence[Callable[..., Any]]) -> bool:
    """Whether a library is named that shards, broadcasts and seeds by itself."""
    return bool(LAUNCHES_ITSELF.search(source_of(functions)))


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


def grouped(make: Callable[[], Any]) -> Any:
    """What `make` returns, with the group of ranks open; where it opens one itself, it does so."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    try:
        return make()
    except (UsersError, ValueError, RuntimeError) as error:
        if "process group twice" not in str(error).lower():
            raise
    dist.destroy_process_group()
    return make()


def ask_ranks(job: Callable[[int], Any], seed: int = 0, seconds: float = SECONDS) -> list[Any]:
    """Return `job(rank)` of each rank's process, in order.

    Raises UsersError for what a rank raised or a deadlock, ProfileError if no fork is possible.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise ProfileError("Ranks are tried where processes can be forked (Linux).")
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        raise ProfileError("The GPU is in use by this process, so ranks cannot be forked from it.")
    with _started(job, seed) as pipes:
        return _collected(pipes, seconds)


@contextlib.contextmanager
def _started(job: Callable[[int], Any], seed: int) -> Iterator[dict[Connection, int]]:
    """Start the ranks; yield the process id of each by its pipe, in order. They end here alone."""
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    meeting = tempfile.mkdtemp(prefix="ranks_")
    try:
        for rank in range(TRIED_RANKS):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run_rank, args=(job, rank, seed, meeting, theirs))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        yield {pipe: process.pid or 0 for pipe, process in zip(pipes, processes, strict=True)}
    finally:
        for process in processes:
            process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()
        shutil.rmtree(meeting, ignore_errors=True)


def _collected(ranks: Mapping[Connection, int], seconds: float) -> list[Any]:
    """The answers in order; UsersError where one is missing. `ranks`: process ids by pipe."""
    pipes, answers, began = list(ranks), dict[int, Any](), time.monotonic()
    while len(answers) < len(pipes):
        waiting = [pipe for rank, pipe in enumerate(pipes) if rank not in answers]
        ready = wait(waiting, POLL_S)
        if not ready:
            wall = time.monotonic() - began  # first: this process may lose its core in between
            if why := overdue(wall, [_used_s(ranks[pipe]) for pipe in waiting], seconds):
                raise UsersError(f"{TRIED_RANKS} ranks {why}.")
        for pipe in ready:
            rank = pipes.index(pipe)  # type: ignore[arg-type]
            try:
                done, answer = pipes[rank].recv()
            except EOFError:
                raise UsersError(f"Rank {rank} of {TRIED_RANKS} ended without an answer.") from None
            if not done:
                raise UsersError(answer)
            answers[rank] = answer
    return [answers[rank] for rank in range(len(pipes))]


def overdue(wall: float, used: Sequence[tuple[float, float]], seconds: float) -> str:
    """Return why to stop waiting for ranks after `wall` seconds; '' to go on.

    `used`: seconds of CPU, and seconds runnable without a core, of each rank without an answer.
    """
    if wall > PATIENT * seconds:
        return f"did not end in {wall:.0f} s"
    if max(cpu for cpu, _ in used) > seconds:
        return f"did not end in {seconds:.0f} s of CPU time"
    if min(wall - cpu - queued for cpu, queued in used) > seconds:
        return f"did not end in {wall:.0f} s: one waits for the other"
    return ""


def _used_s(process: int) -> tuple[float, float]:
    """Seconds of CPU of all threads of a process, and seconds that they wait for a core."""
    cpu = queued = 0
    with contextlib.suppress(OSError, ValueError):  # it ends meanwhile, or the system has no count
        for thread in Path(f"/proc/{process}/task").iterdir():
            ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
            cpu, queued = cpu + ran, queued + waited
    return cpu / 1e9, queued / 1e9


def _run_rank(
    job: Callable[[int], Any], rank: int, seed: int, meeting: str, pipe: Connection
) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    try:
        try:
            os.environ |= rank_environment(rank, TRIED_RANKS)
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
                _meet_in(meeting)
            seed_everything(seed + 1 + rank)
            pipe.send((True, job(rank)))
        except BaseException as error:  # noqa: BLE001 - the other side turns it into a sentence
            pipe.send((False, explain_error(f"Rank {rank} of {TRIED_RANKS}", error)))
        # until it is killed: a rank that ends closes its connections while the other one uses them
        wait([multiprocessing.parent_process().sentinel])  # type: ignore[union-attr]
    finally:
        os._exit(0)


def _meet_in(folder: str) -> None:
    """Let this process find its group through files, without a name service."""
    names = (f"{folder}/{number}" for number in itertools.count())  # a group that is opened again
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    rendezvous.TCPStore = lambda *_, **__: rendezvous.FileStore(next(names), TRIED_RANKS)
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


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
    with _environment(rank, ranks):
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
def _environment(rank: int, ranks: int) -> Iterator[None]:
    values = rank_environment(rank, ranks)
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ |= values
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ |= before


ENOUGH, FEWEST = 64, 16


@dataclass(frozen=True)
class RankReading:
    """The start of an epoch of one rank: samples; generator states by stream and worker."""

    samples: tuple[str, ...]
    draws: Mapping[tuple[str, int], tuple[tuple[str, str], ...]]


def read_ranks(subject: LoaderSubject) -> list[RankReading]:
    """Both ranks; ProfileError where ranks are nothing of the user's."""
    factory = [subject.make_loader]
    if subject.evaluation:
        raise ProfileError("Ranks may evaluate alike: ask for the loader of the training.")
    if not has_ranks(factory):
        raise _of_one_process("loader")
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
    for number, batch in enumerate(batches_of(probed_loader(loader) if torch else loader)):
        found, raw = batch if torch else ((), batch)
        records += found
        indexed = torch and loader._dataset_kind == 0
        samples += [str(r.index) for r in found] if indexed else sample_digests(raw)
        if len(samples) >= ENOUGH and number >= 2 * getattr(loader, "num_workers", 0):
            break
    return RankReading(tuple(samples), _draws(records))


def _draws(records: list[SampleRecord]) -> dict[tuple[str, int], tuple[tuple[str, str], ...]]:
    found = defaultdict(list)
    for record in records:
        for name in record.used():
            found[name, record.worker].append((record.before[name], record.after[name]))
    return {key: tuple(pairs[:8]) for key, pairs in found.items()}


STEPS = 3
WRAPS = re.compile(r"DistributedDataParallel|\bDDP\b|\bFSDP\b|FullySharded|fully_shard")


@dataclass
class RankSteps:
    """One rank: digests of weights by name, the state of torch's generator around a step.

    drawn: states around the first step. means: after the steps and at the evaluation. written:
    files.
    """

    start: dict[str, str]
    end: dict[str, str] = field(default_factory=dict)
    drawn: tuple[str, str] = ("", "")
    wrapped: bool = False  # in DistributedDataParallel or FSDP
    means: dict[str, tuple[float, ...]] = field(default_factory=dict)
    evaluated: dict[str, tuple[float, ...]] = field(default_factory=dict)
    written: tuple[str, ...] = ()


def step_ranks(subject: Any) -> list[RankSteps]:
    """Both ranks of a TrainingSubject; ProfileError where ranks are nothing of the user's."""
    functions: Functions = subject.functions or {"make_training": subject.make}
    asked = list(functions.values())
    if not has_ranks(asked):
        raise _of_one_process("training")
    if launches_itself(asked):
        raise ProfileError("A library is named that launches ranks by itself.")
    if WRAPS.search(source_of(asked)):
        importlib.import_module("torch._dynamo")  # 2 s that each rank would pay for itself
    seconds = max(5.0, min(40.0, subject.time_left() / 4))
    return ask_ranks(lambda rank: _stepped(subject, functions), subject.seed, seconds)


def _stepped(subject: Any, functions: Functions) -> RankSteps:
    written: list[str] = []
    synchronise_on_cpu()
    with redirect_writes(written):
        make = made_from(read_anew(functions)) if subject.functions else subject.make
        training = grouped(lambda: checked(make()))
        own = type(subject)(lambda: training, subject.seed)
        own.settings = training  # made once: a group is opened once
        kinds = {type(module).__name__ for module in training.model.modules()}
        wrapped = not kinds.isdisjoint({"DistributedDataParallel", "FullyShardedDataParallel"})
        found = RankSteps(_digests(training.model), wrapped=wrapped)
        batches = own.whole_batches
        for number in range(STEPS):
            before = _random_state()
            own.step(training, batches[number % len(batches)])
            if not number:
                found.drawn = before, _random_state()
        found.end = _digests(training.model)
        found.means = {name: _mean_of(norm) for name, norm in _norms(training.model).items()}
        found.evaluated = _evaluated(training)
    found.written = tuple(dict.fromkeys(written))
    return found


def _digests(model: Any) -> dict[str, str]:
    return {
        name: hashlib.blake2b(p.detach().cpu().float().numpy().tobytes()).hexdigest()
        for name, p in model.named_parameters()
    }


def _random_state() -> str:
    return hashlib.blake2b(torch.get_rng_state().numpy().tobytes()).hexdigest()


def _norms(model: Any) -> dict[str, Any]:
    return {n: norm for n, norm in batch_norms(model).items() if norm.running_mean is not None}


def _mean_of(norm: Any) -> tuple[float, ...]:
    """The running mean in deviations."""
    scaled = norm.running_mean / (norm.running_var + norm.eps).sqrt()
    return tuple(scaled.detach().double().cpu().tolist())


def _evaluated(training: Training) -> dict[str, tuple[float, ...]]:
    """The running means that the user's own evaluation uses first; empty without one."""
    seen: dict[str, tuple[float, ...]] = {}
    if training.evaluate is None:
        return seen

    names = {norm: name for name, norm in _norms(training.model).items()}

    def look(norm: Any, inputs: Any) -> None:
        if not norm.training:
            seen.setdefault(names[norm], _mean_of(norm))

    for norm in names:
        norm.register_forward_pre_hook(look)
    loader = training.eval_loader if training.eval_loader is not None else training.loader
    call_evaluate(training, list(itertools.islice(loader, STEPS)))
    return seen


# torch's runs on accelerators alone. The arithmetic is the same: mean and variance over the batches
# of all ranks, gradients through them, running statistics of all.


def synchronise_on_cpu() -> None:
    """Let SyncBatchNorm take tensors of the CPU, in this process and until it ends."""
    norms: Any = nn.SyncBatchNorm
    wrapper: Any = nn.parallel.DistributedDataParallel

    on_device = norms.forward

    def forward(norm: Any, inputs: Any) -> Any:
        return on_device(norm, inputs) if inputs.device.type != "cpu" else _normalised(norm, inputs)

    norms.forward = forward
    # All that it does is to refuse the CPU.
    wrapper._passing_sync_batchnorm_handle = lambda *_: None


def _normalised(norm: Any, inputs: Any) -> Any:
    by_batch = norm.training or norm.running_mean is None
    if not by_batch:
        mean, variance = norm.running_mean, norm.running_var
        return functional.batch_norm(
            inputs, mean, variance, norm.weight, norm.bias, False, 0.0, norm.eps
        )
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
    channels = inputs.transpose(0, 1).flatten(1).double()
    count = torch.full_like(channels[:, :1], channels.shape[1]).squeeze(1)
    sums = torch.stack([channels.sum(1), (channels**2).sum(1), count])
    total, squares, count = _sum_over_ranks(sums, norm.process_group)
    mean = total / count
    variance = (squares / count - mean**2).clamp_min(0)
    return mean.to(inputs.dtype), variance.to(inputs.dtype), count.to(inputs.dtype)


def _sum_over_ranks(values: Any, group: Any) -> Any:
    """Return the sum over all ranks; its gradient is that of all of them, too."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Any) -> Any:
            total = given.clone()
            dist.all_reduce(total, group=group)
            return total

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return Sum.forward(ctx, gradient)

    return Sum.apply(values)  # type: ignore[no-untyped-call]


def _follow(norm: Any, mean: Any, variance: Any) -> None:
    """Move the running statistics towards those of a batch."""
    with torch.no_grad():
        norm.num_batches_tracked.add_(1)
        kept = norm.momentum
        newest = 1 / float(norm.num_batches_tracked) if kept is None else kept
        norm.running_mean.lerp_(mean, newest)
        norm.running_var.lerp_(variance, newest)


# For a process that ends afterwards: what is opened to be written lies beside, and whoever reads it
# back finds it there. Files that compiled code opens, and folders that are made, are not seen.


@contextlib.contextmanager
def redirect_writes(paths: list[str]) -> Iterator[None]:
    """Let `open` and `torch.save` write beside until the block ends; collect what was named."""
    import torch  # itself, for its `save` is replaced

    real_open, real_save = builtins.open, torch.save
    moved: dict[str, str] = {}

    def beside(path: str, keeps: bool) -> str:
        if path not in moved:
            paths.append(path)
            moved[path] = str(Path(folder, str(len(moved))))
            if keeps and os.path.exists(path):
                with real_open(path, "rb") as old, real_open(moved[path], "wb") as new:
                    shutil.copyfileobj(old, new)
        return moved[path]

    def opened(file: Any, mode: str = "r", *others: Any, **named: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(file))
            own = path.startswith(("/dev/", "/proc/", folder)) or "__pycache__" in path
            if set(mode) & set("wax+") and not own:
                file = beside(path, keeps="w" not in mode)
            else:
                file = moved.get(path, file)
        return real_open(file, mode, *others, **named)

    def save(content: Any, file: Any, *others: Any, **named: Any) -> None:
        if isinstance(file, str | os.PathLike):
            file = beside(os.path.abspath(os.fspath(file)), keeps=False)
        real_save(content, file, *others, **named)

    with tempfile.TemporaryDirectory() as folder:
        builtins.open, io.open, torch.save = opened, opened, save  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.open, io.open, torch.save = real_open, real_open, real_save
