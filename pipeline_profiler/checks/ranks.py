"""Ranks of a distributed training: what a program's text, and its calls in one process, show."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline_profiler.checks.loop_facts import RankFacts
from pipeline_profiler.checks.user_code import user_place, user_places
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
COLLECTIVES = ("all_reduce", "broadcast", "broadcast_object_list")
MAX_WRITTEN = 50
WRITERS = re.compile(  # code that opens files for its caller
    rf"^{re.escape(os.path.dirname(os.__file__))}/(?!site-packages)|^<|/pipeline_profiler/"
    r"|site-packages/(torch|numpy|pandas|PIL|matplotlib|safetensors)/"
)
RANK_TEST = re.compile(r"rank|master|main_proc|is_main", re.IGNORECASE)


def source_of(functions: Sequence[Callable[..., Any]]) -> str:
    """The text of the files of top-level functions, and of local functions alone."""
    texts = []
    for function in functions:
        local = "." in getattr(function, "__qualname__", ".")
        module = sys.modules.get(getattr(function, "__module__", ""))
        with contextlib.suppress(OSError, TypeError):
            texts.append(inspect.getsource(function if local or module is None else module))
    return "\n".join(dict.fromkeys(texts))


def speaks_of_ranks(text: str) -> bool:
    """Return whether a program is written for ranks, and no library launches and seeds them."""
    return bool(SPEAKS_OF_RANKS.search(text)) and not LAUNCHES_ITSELF.search(text)


def script_text() -> str:
    """The text of the script that runs, and of the user's own modules."""
    return "\n".join(own_files().values())


def own_files() -> dict[str, str]:
    """The texts of the script that runs, and of the user's own modules, by path."""
    ours = ("pipeline_profiler", "dataset_preflight", "audit")
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


def depends_on_rank(place: str) -> bool:
    """Return whether a line of the user's names a rank, or runs only if a rank is the right one."""
    if (site := site_of(place)) is None:
        return False
    line = site.at.lineno
    holders = site.around(line)
    tests = [n.test for n in holders if isinstance(n, ast.If)]
    for function in [n for n in holders if isinstance(n, ast.FunctionDef)][:1]:
        leaves = (n for n in ast.walk(function) if isinstance(n, ast.If) and n.end_lineno < line)
        tests += [n.test for n in leaves if isinstance(n.body[-1], ast.Return)]
        tests += function.decorator_list
    return any(map(RANK_TEST.search, [site.lines[line - 1], *map(site.code, tests)]))


def _seeded_by_rank() -> bool:
    """Return whether a function of the user's that runs now makes a seed of a rank."""
    for site in filter(None, map(site_of, user_places())):
        functions = [n for n in site.around(site.at.lineno) if isinstance(n, ast.FunctionDef)]
        scope = site.code(functions[-1]) if functions else "".join(site.lines)
        if SEED_OF_RANK.search(scope):
            return True
    return False


class RankWatch:
    """Records what a program does as one of several ranks, by hooks of torch and of Python."""

    def __init__(self) -> None:
        self.facts = RankFacts()
        self.inside: list[Any] = []  # models in DistributedDataParallel
        self.ended = False

    def hook(self, hooks: Any, torch: Any) -> None:
        """Put the hooks in."""
        wrapped = [(torch.nn.parallel.DistributedDataParallel, "__init__"), (torch, "save")]
        for owner, name in wrapped + [(torch.distributed, name) for name in COLLECTIVES]:
            hooks.wrap(owner, name, functools.partial(self._call, name))
        sys.addaudithook(self._audit)  # nothing removes it
        hooks.undo.append(lambda: setattr(self, "ended", True))

    def seed(self) -> None:
        """Note a seed of torch that the user's code sets."""
        if place := user_place():
            self.facts.seeded.append((place, _seeded_by_rank()))

    def step(self, module: Any) -> None:
        """Note the module that a training step calls."""
        if any(module is inner for inner in self.inside):
            self.facts.bypassed = self.facts.bypassed or user_place()

    def _call(self, name: str, plain: Any, *args: Any, **kwargs: Any) -> Any:
        result, facts = plain(*args, **kwargs), self.facts
        if name == "__init__":
            facts.wrapped = True
            self.inside.append(args[0].module)
        elif name == "save":
            file = (*args[1:], kwargs.get("f"))[0]
            if isinstance(file, str | os.PathLike):  # C++ writes it
                self._audit("open", (os.fspath(file), "w"))
        elif name not in facts.collectives:
            facts.collectives.append(name)
        return result

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Note a file that the user's code opens to write, and whether that depends on the rank."""
        if self.ended or event != "open" or not set(str(args[1])) & set("wax+"):
            return
        frame: Any = sys._getframe(1)
        while frame is not None and WRITERS.search(frame.f_code.co_filename):
            frame = frame.f_back
        written, own = self.facts.written, frame and is_own_code(frame.f_code.co_filename)
        local = isinstance(args[0], str) and not args[0].startswith(("/dev/", "/proc/"))
        places = list(user_places()) if own and local and len(written) < MAX_WRITTEN else []
        if places:
            guarded = any(map(depends_on_rank, places))
            written.append((places[0], Path(args[0]).name, guarded))
