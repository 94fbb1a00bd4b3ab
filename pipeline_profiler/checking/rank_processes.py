"""Two ranks of the user's code as real processes with gloo between them.

Asked for only where the user's source speaks of ranks: a script of one process costs nothing. Each
rank is a fork of this process that reads the user's file anew (a rank is often read at import) in
the environment of `torchrun`, after seeding with a number of its own, as processes start by
themselves. What a rank prints goes nowhere, and what it writes lies in a scratch
folder that is removed.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import multiprocessing
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from pipeline_profiler.checking.rank_shards import TRIED_RANKS, rank_environment, rank_words
from pipeline_profiler.checking.torch_state import seed_everything
from pipeline_profiler.checking.user_calls import UsersError, explain_error
from pipeline_profiler.record.errors import ProfileError

SPEAKS_OF_RANKS = re.compile(
    r"WORLD_SIZE|LOCAL_RANK|[\"']RANK[\"']|get_rank|init_process_group|DistributedDataParallel"
    r"|DistributedSampler"
)
LAUNCHES_ITSELF = re.compile(r"\b(lightning|pytorch_lightning|accelerate|deepspeed|horovod|ray)\b")
SECONDS = 40.0  # of the clock, for both ranks
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
    """What `make` returns; the group of ranks is opened where it misses one."""
    import torch.distributed as dist

    try:
        return make()
    except (UsersError, ValueError, RuntimeError) as error:
        if "process group" not in str(error).lower() or dist.is_initialized():
            raise
    dist.init_process_group("gloo")
    return make()


def ask_ranks(job: Callable[[int], Any], seed: int = 0, seconds: float = SECONDS) -> list[Any]:
    """`job(rank)` in one process a rank, its answers in order.

    Raises UsersError for what a rank raised or where the ranks wait for each other, ProfileError
    where this process cannot be forked.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise ProfileError("Ranks are tried where processes can be forked (Linux).")
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        raise ProfileError("The GPU is in use by this process, so ranks cannot be forked from it.")
    with _started(job, seed) as pipes:
        return _collected(pipes, seconds)


@contextlib.contextmanager
def _started(job: Callable[[int], Any], seed: int) -> Iterator[list[Connection]]:
    context, port = multiprocessing.get_context("fork"), _free_port()
    pipes, processes = [], []
    try:
        for rank in range(TRIED_RANKS):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run_rank, args=(job, rank, seed, port, theirs))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        yield pipes
    finally:
        for process in processes:
            process.kill()
            process.join()
        for pipe in pipes:
            pipe.close()


def _collected(pipes: list[Connection], seconds: float) -> list[Any]:
    answers: dict[int, Any] = {}
    end = time.monotonic() + seconds
    while len(answers) < len(pipes):
        waiting = [pipe for rank, pipe in enumerate(pipes) if rank not in answers]
        ready = wait(waiting, max(0.0, end - time.monotonic()))
        if not ready:
            raise UsersError(
                f"{TRIED_RANKS} ranks did not end in {seconds:.0f} s: one waits for the other."
            )
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


def _run_rank(job: Callable[[int], Any], rank: int, seed: int, port: int, pipe: Connection) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    try:
        os.environ |= rank_environment(rank, TRIED_RANKS)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        seed_everything(seed + 1 + rank)
        pipe.send((True, job(rank)))
    except BaseException as error:  # noqa: BLE001 - the other side turns it into a sentence
        pipe.send((False, explain_error(f"Rank {rank} of {TRIED_RANKS}", error)))
    finally:
        pipe.close()
        os._exit(0)


def _free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])
