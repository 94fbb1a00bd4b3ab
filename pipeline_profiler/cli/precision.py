"""`pipeline-profiler precision`: parse, one call, format.

Without arguments it trains the shipped networks on sample images.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from dataset_preflight.foundation.ending import ExitCode, strongest
from pipeline_profiler.cli import ending
from pipeline_profiler.cli.arguments import (
    PYTHON_HELP,
    YES_HELP,
    check_amount,
    split_numbers,
    split_words,
)
from pipeline_profiler.cli.ending import finish
from pipeline_profiler.cli.output import check_session_output, say, show
from pipeline_profiler.cli.runs import record_command
from pipeline_profiler.cli.settings import MeasureSettings
from pipeline_profiler.cli.user_code import call_user, spec_file, target
from pipeline_profiler.profiling.record.session import ProfileError

if TYPE_CHECKING:
    from pipeline_profiler.precision.image_data import ImageData
    from pipeline_profiler.precision.plan import ModelJob, SweepOptions
    from pipeline_profiler.precision.trainer import Backend, MakeLoader, MakeModel
    from pipeline_profiler.profiling.measure.watchdog import Guard
    from pipeline_profiler.profiling.record.session import Session

GPU_SIZES, CPU_SIZES = "64,128,256,512", "4,8"
GPU_PRECISIONS, CPU_PRECISIONS = "fp32,tf32,fp16,bf16", "fp32,bf16"
GPU_SECONDS, CPU_SECONDS = 300.0, 120.0
GPU_PARITY, CPU_PARITY = 50, 8
GPU_LR, CPU_LR = 0.01, 0.001  # small batches have noisy gradients: larger steps diverge
UNITS = {"": 1} | {
    letter + i: (1024 if i else 1000) ** power
    for power, letter in enumerate("kmgt", 1)
    for i in ("", "i")
}
OF_A_MODEL = (  # options that a script after `--` does not take
    *("model", "step", "loader", "data", "workers", "batch_sizes", "lr", "channels_last"),
    *("compile", "device", "memory_limit", "gpu", "largest"),
)
# glibc returns memory to the system by thresholds that follow the sizes freed: steps of another
# precision would change the page faults of a step. By the environment, and by mallopt's number.
STEADY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": f"{32 << 20}", "MALLOC_TRIM_THRESHOLD_": f"{16 << 30}"}
STEADY_MALLOPT = {-3: 32 << 20, -1: 2**31 - 1}
GIVEN = "given on the command line"  # for a training that needs to bring no loader of its own
OPTIMIZERS = ("sgd", "adam", "adamw")
MOST_WORKERS = 1024
DEFAULT_MODEL = "resnet18"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount the command."""
    p = commands.add_parser("precision", help="training steps by precision, loader attached")
    p.add_argument(
        "model",
        nargs="?",
        metavar="FILE.py:FUNCTION",
        help="makes the model, or (model, loss); shipped: resnet18, dpn26, dpn92. Or `-- SCRIPT`",
    )
    p.add_argument(
        "--step",
        metavar="FILE.py:FUNCTION",
        help="makes your own step(batch, precision), or what check's make_training gives",
    )
    _add_data_options(p)
    _add_step_options(p)
    _add_run_options(p)
    p.add_argument("--yes", action="store_true", help=YES_HELP)
    p.set_defaults(command=run_precision, fail_on=None, takes_script=True)


def _add_data_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--python", metavar="PATH", help=PYTHON_HELP)
    p.add_argument("--loader", metavar="FILE.py:FUNCTION", help="make_loader(batch_size)")
    p.add_argument("--data", metavar="FOLDER", help="class folders, instead of --loader")
    p.add_argument(
        "--workers",
        metavar="LIST",
        help="num_workers of the loader; more than one, such as 4,8, are timed alone "
        "(default over --data: cores - 1)",
    )
    p.add_argument("--batch-sizes", metavar="LIST", help=f"default {GPU_SIZES}; CPU {CPU_SIZES}")


def _add_step_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--precisions", metavar="LIST", help=f"default {GPU_PRECISIONS}; CPU {CPU_PRECISIONS}"
    )
    p.add_argument(
        "--loss-scale",
        default="dynamic",
        metavar="LIST",
        help="of FP16: dynamic and fixed scales, such as dynamic,64,128,256 (default dynamic)",
    )
    p.add_argument("--optimizer", default="sgd", help="sgd, adam or adamw (default sgd)")
    p.add_argument("--lr", type=float, help=f"learning rate ({GPU_LR:g}; on a CPU {CPU_LR:g})")
    p.add_argument("--channels-last", action="store_true", help="NHWC memory format (torch)")
    p.add_argument("--compile", action="store_true", help="torch.compile, or XLA with Keras")
    p.add_argument("--framework", choices=("torch", "keras"), default="torch", help="default torch")
    p.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU where there is one")


def _add_run_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--seconds", type=float, help=f"time budget ({GPU_SECONDS:.0f}; CPU {CPU_SECONDS:.0f})"
    )
    p.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="limit GPU memory to this size, such as 21GiB, to simulate a smaller card",
    )
    p.add_argument("--gpu", metavar="NAME", help="only estimate memory, on a GPU such as h100")
    p.add_argument("--largest", action="store_true", help="find the largest batch on a CPU too")
    p.add_argument("--full", action="store_true", help="print all rows and sections")
    p.add_argument("-o", "--output", default="precision.json", help="session file")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    record_command(p)


def estimate_memory(args: argparse.Namespace) -> int:
    """Print the peak memory on a GPU that is not there; nothing is trained or saved."""
    from pipeline_profiler.precision import memory
    from pipeline_profiler.precision.data_source import DataSource
    from pipeline_profiler.precision.plan import check_options
    from pipeline_profiler.precision.trainer import Backend

    check_arguments(args)
    if args.step or args.compile or args.framework != "torch":
        raise ProfileError("--gpu needs an eager torch model: leave --step and --compile out.")
    room, args.workers = memory.memory_room(args.gpu, read_size(args.memory_limit)), (0,)
    gpu, rows, args.device = args.gpu or "h100", [], "cpu"
    backend = open_backend(args)
    jobs = make_jobs(args, backend)[1]
    backend.device = "cuda"  # the defaults of a GPU
    options = choose_options(args, backend)
    check_options(options)
    if refused := [text for p in options.precisions if (text := Backend.refusal(backend, p))]:
        raise ProfileError(refused[0])
    clock, size = time.perf_counter_ns, min(options.batch_sizes)
    for job in jobs:
        source = DataSource.open(job.make_loader, job.name, size, clock)
        if source.problem:
            raise ProfileError(source.problem)
        rows += memory.estimate_table(job, options, source.cached_batches[0], room, gpu)
    document = {"estimate": True, "room_bytes": room, "rows": [asdict(row) for row in rows]}
    return show(json.dumps(document) if args.json else memory.format_rows(rows, room))


def run_precision(args: argparse.Namespace) -> int:
    """Measure a model, or a script after `--`; save, print. Or estimate memory alone."""
    can_estimate = args.framework == "torch" and not args.step and args.script is None
    is_absent = args.memory_limit and can_estimate and open_backend(args).device == "cpu"
    if args.script is None and (args.gpu or is_absent):
        return estimate_memory(args)
    # torch's profiler and its C++ side write to stderr, through the progress bar
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    session = run_sweep(args) if args.script is None else measure_script(args)
    code = finish(session, args)
    interrupted = any("KeyboardInterrupt" in note for note in session.notes)
    return strongest(ExitCode(code), ExitCode.INTERRUPTED) if interrupted else code


def measure_script(args: argparse.Namespace) -> Session:
    """Time the steps of an unmodified script at several precisions; returns the session."""
    from pipeline_profiler.checks.caught_run import CheckOrder
    from pipeline_profiler.cli.check_script import run_script
    from pipeline_profiler.precision.script import HOOKS
    from pipeline_profiler.profiling.measure.environment import describe
    from pipeline_profiler.profiling.monitor.launch import script_of
    from pipeline_profiler.profiling.record.session import Session, utc_now

    if given := [name for name in OF_A_MODEL if getattr(args, name) not in (None, False)]:
        raise ProfileError(f"Leave {given[0].replace('_', '-')} out: a script brings its own.")
    check_amount("--seconds", args.seconds)
    check_session_output(args.output, [word for word in args.script if os.path.isfile(word)])
    seconds, only = args.seconds or CPU_SECONDS, tuple(split_words(args.precisions))
    order = CheckOrder("", "", seconds, only=only, seed=args.settings.measure.seed, hooks=HOOKS)
    until = f"with blocks of steps at other precisions, for at most {seconds:.0f} s of training"
    os.environ.update(STEADY_MALLOC)
    load = describe()["load"]
    code, told = run_script(args.script, order, args.yes, until)
    if told is None:
        raise ProfileError(
            f"{script_of(args.script)} ended with exit code {code}, and no step of a torch "
            "optimizer was seen: give a training that calls optimizer.step()."
        )
    notes = list(filter(None, [told["problem"]]))
    if not told["results"]:
        raise ProfileError(notes[0])
    for note in notes:
        say(note)
    environment = told["environment"] | {"load": load}  # of the time before
    return Session([], environment, results=told["results"], notes=notes, created=utc_now())


def run_sweep(args: argparse.Namespace) -> Session:
    """Measure; returns the session."""
    began = time.perf_counter_ns()
    check_arguments(args)
    from pipeline_profiler.checks.runner import ProgressLine
    from pipeline_profiler.precision.sweep import measure_precisions

    backend = open_backend(args)
    notes, jobs = make_jobs(args, backend)
    options = choose_options(args, backend)
    if backend.device == "cpu" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        for number, size in STEADY_MALLOPT.items():
            libc.mallopt(number, size)
    line = ProgressLine()
    try:
        return measure_precisions(
            backend,
            jobs,
            options,
            progress=lambda done, total, text: line(f"{done} of {total} s: {text}"),
            notes=notes,
            guard=_guard(args, options),
            began=began,
        )
    finally:
        line.clear()


def check_arguments(args: argparse.Namespace) -> None:
    """Raise ProfileError for what is known to be wrong before a framework is imported."""
    if args.loader and args.data:
        raise ProfileError("Give --loader or --data, not both.")
    if args.step and (args.model or args.framework == "keras"):
        raise ProfileError("--step brings its own model, in torch: leave the other out.")
    check_amount("--seconds", args.seconds)
    check_amount("--lr", args.lr)
    args.workers = _once(split_numbers(args.workers, "--workers"))
    if not all(0 <= number <= MOST_WORKERS for number in args.workers):
        raise ProfileError(f"--workers takes whole numbers from 0 to {MOST_WORKERS}.")
    split_numbers(args.batch_sizes, "--batch-sizes")
    read_size(args.memory_limit)
    if args.optimizer not in OPTIMIZERS:
        raise ProfileError(f"--optimizer is one of {', '.join(OPTIMIZERS)}.")
    files = [spec_file(args.model), spec_file(args.loader), spec_file(args.step)]
    check_session_output(args.output, [name for name in files if name])


def _guard(args: argparse.Namespace, options: SweepOptions) -> Guard:
    from pipeline_profiler.profiling.measure.watchdog import Guard

    return Guard(
        limit_s=args.settings.measure.limit or 2 * options.seconds,
        rescue=lambda session: ending.rescue(session, args),
    )


def open_backend(args: argparse.Namespace) -> Backend:
    """The framework asked for."""
    if args.framework == "keras":
        from pipeline_profiler.precision.backend_keras import KerasBackend

        return KerasBackend(args.device)
    from pipeline_profiler.precision.backend_torch import TorchBackend

    return TorchBackend(args.device)


def choose_options(args: argparse.Namespace, backend: Backend) -> SweepOptions:
    """The options, with defaults that suit the device."""
    from pipeline_profiler.precision.plan import SweepOptions
    from pipeline_profiler.precision.trainer import OWN_OPTIMIZER, Recipe

    measure: MeasureSettings = args.settings.measure
    gpu = backend.device == "cuda"
    sizes = GPU_SIZES if gpu else CPU_SIZES
    precisions = GPU_PRECISIONS if gpu else CPU_PRECISIONS
    return SweepOptions(
        batch_sizes=_once(split_numbers(args.batch_sizes or sizes, "--batch-sizes")),
        precisions=_once(split_words(args.precisions or precisions)),
        loss_scales=_once(split_words(args.loss_scale)),
        recipe=Recipe(
            OWN_OPTIMIZER if args.step else args.optimizer,
            (GPU_LR if gpu else CPU_LR) if args.lr is None else args.lr,
            args.channels_last,
            args.compile,
            measure.seed,
        ),
        rounds=measure.repeats or SweepOptions.rounds,
        steps=measure.steps,
        seconds=args.seconds or (GPU_SECONDS if gpu else CPU_SECONDS),
        parity_steps=measure.parity_steps or (GPU_PARITY if gpu else CPU_PARITY),
        memory_limit=read_size(args.memory_limit),
        largest=True if args.largest else None,
        workers=args.workers[1:],
    )


def read_size(text: str | None) -> int | None:
    """'21GiB', '500 MB', '1000000' -> bytes; None stays None."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)\s*", text, re.IGNORECASE)
    unit = found[2].lower().rstrip("b") if found else ""
    size = 0 if found is None else int(float(found[1]) * UNITS.get(unit, 0))
    if size <= 0:
        raise ProfileError(f"--memory-limit takes a size such as 21GiB or 500MB, not '{text}'.")
    return size


def _once(values: list[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def make_jobs(args: argparse.Namespace, backend: Backend) -> tuple[list[str], list[ModelJob]]:
    """The models with their data, and notes about the data."""
    from pipeline_profiler.precision.plan import ModelJob

    notes: list[str] = []
    if args.step:
        return _own_step_job(args, backend)
    if args.loader:
        make_loader, classes = load_own_loader(args.loader, args.workers), 10
    else:
        make_loader, data = make_folder_loader(args, backend)
        classes, notes = data.classes, list(data.notes)
    models = make_models(args, classes)
    return notes, [ModelJob(name, make, make_loader) for name, make in models]


def _own_step_job(args: argparse.Namespace, backend: Backend) -> tuple[list[str], list[ModelJob]]:
    """The user's own step with the loader asked for, else the one that it brings."""
    from pipeline_profiler.checks.user_training import Training
    from pipeline_profiler.precision.backend_torch import read_step
    from pipeline_profiler.precision.data_source import make_sized_loader, own_batch_size
    from pipeline_profiler.precision.plan import ModelJob

    make = target(args.step, "the step, a function step(batch, precision)")
    first = read_step(call_user(make, "make_step()"), GIVEN if args.loader or args.data else None)
    notes: list[str] = []
    if args.loader:
        make_loader = load_own_loader(args.loader, args.workers)
    elif isinstance(first, Training) and not args.data:
        brought = first.loader
        # its own batch size, unless others are asked for
        args.batch_sizes = args.batch_sizes or str(own_batch_size(brought) or "")
        make_loader = lambda size: make_sized_loader(lambda: brought, size)  # noqa: E731
    else:
        make_loader, data = make_folder_loader(args, backend)
        notes = list(data.notes)
    name = args.step.rpartition(":")[2]
    return notes, [ModelJob(name, lambda: read_step(make(), GIVEN), make_loader, pairs=False)]


def load_own_loader(text: str, workers: tuple[int, ...]) -> MakeLoader:
    """The user's loader as a function of the batch size, with the first of `workers`."""
    from pipeline_profiler.precision.data_source import make_sized_loader

    make = target(text, "the loader")
    return lambda size: make_sized_loader(make, size, workers[0] if workers else None)


def make_folder_loader(args: argparse.Namespace, backend: Backend) -> tuple[MakeLoader, ImageData]:
    """The shipped loader over a folder of images."""
    from pipeline_profiler.precision.image_data import (
        find_data,
        make_keras_loader,
        make_torch_loader,
    )

    data, workers = find_data(args.data), args.workers[0] if args.workers else None
    if args.framework == "keras":
        return lambda size: make_keras_loader(data, size, workers), data
    pin = backend.device == "cuda"
    return lambda size: make_torch_loader(data, size, workers, pin), data


def make_models(args: argparse.Namespace, classes: int) -> list[tuple[str, MakeModel]]:
    """The user's model, or a shipped one by name."""
    if args.framework == "keras":
        from pipeline_profiler.precision.backend_keras import keras_resnet18

        makers: Mapping[str, Callable[[int], object]] = {"resnet18": keras_resnet18}
    else:
        from pipeline_profiler.precision.models import SHIPPED

        makers = SHIPPED
    shipped: dict[str, MakeModel] = {name: partial(make, classes) for name, make in makers.items()}
    if (name := args.model or DEFAULT_MODEL) in shipped:
        return [(name, shipped[name])]
    if ":" not in args.model:
        names = ", ".join(shipped)
        raise ProfileError(
            f"'{args.model}' is no shipped model ({names}) and no FILE.py:FUNCTION of your own."
        )
    return [(args.model.rpartition(":")[2], target(args.model, "the model"))]
