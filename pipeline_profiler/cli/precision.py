"""`pipeline-profiler precision`: parse, one call, format.

Without arguments it trains the shipped networks on the pictures at hand, so that the command shows
what it does before anything is written for it. Progress goes to stderr: a bar on a terminal,
plain lines in a log.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pipeline_profiler.record.session import ProfileError

if TYPE_CHECKING:
    from pipeline_profiler.precision.image_data import Data
    from pipeline_profiler.precision.plan import Job, Options
    from pipeline_profiler.precision.probe import Progress
    from pipeline_profiler.precision.trainer import Backend

GPU_SIZES, CPU_SIZES = "64,128,256,512", "4,8"
GPU_PRECISIONS, CPU_PRECISIONS = "fp32,tf32,fp16,bf16", "fp32,bf16,fp16"
GPU_SECONDS, CPU_SECONDS = 300.0, 120.0
GPU_PARITY, CPU_PARITY = 50, 8
GPU_LR, CPU_LR = 0.01, 0.001  # small batches stand small steps only
LINE_EVERY_S = 15.0
SHIPPED_BY_DEFAULT = ("resnet18", "dpn26")


def add(commands: Any, finish: Callable[[Any, argparse.Namespace], int]) -> None:
    """Mount the command; `finish` saves and prints a session."""
    p = commands.add_parser("precision", help="training steps by precision, loader attached")
    p.add_argument(
        "model",
        nargs="?",
        metavar="FILE.py:FUNCTION",
        help="makes the model, or (model, loss); a shipped one: resnet18, dpn26, dpn92",
    )
    p.add_argument("--loader", metavar="FILE.py:FUNCTION", help="make_loader(batch_size)")
    p.add_argument("--data", metavar="FOLDER", help="class folders, instead of --loader")
    p.add_argument("--batch-sizes", metavar="LIST", help=f"default {GPU_SIZES}; CPU {CPU_SIZES}")
    p.add_argument("--precisions", metavar="LIST", help=f"default {GPU_PRECISIONS}")
    p.add_argument("--loss-scale", default="dynamic", metavar="LIST", help="dynamic,64,128,256")
    p.add_argument("--optimizer", default="sgd", help="sgd, adam or adamw (default sgd)")
    p.add_argument("--lr", type=float, help=f"learning rate ({GPU_LR:g}; on a CPU {CPU_LR:g})")
    p.add_argument("--channels-last", action="store_true", help="NHWC memory format (torch)")
    p.add_argument("--compile", action="store_true", help="torch.compile, or XLA with Keras")
    p.add_argument("--framework", choices=("torch", "keras"), default="torch")
    p.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU where there is one")
    p.add_argument("--workers", type=int, help="of the loader over --data (default: cores - 1)")
    p.add_argument("--steps", type=int, default=50, help="timed steps a window (default 50)")
    p.add_argument("--repeats", type=int, default=5, help="interleaved repeats (default 5)")
    p.add_argument("--parity-steps", type=int, metavar="K", help="steps of the loss comparison")
    p.add_argument("--seconds", type=float, help=f"time budget ({GPU_SECONDS:.0f}; CPU "
                   f"{CPU_SECONDS:.0f})")  # fmt: skip
    p.add_argument("--largest", action="store_true", help="find the largest batch on a CPU too")
    p.add_argument("--seed", type=int, default=0, help="weights and order (default 0)")
    p.add_argument("-o", "--output", default="precision.json", help="session file")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    p.set_defaults(command=lambda args: finish(run(args), args), fail_on=None)


def run(args: argparse.Namespace) -> Any:
    """Measure; returns the session."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler talks on stderr
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from pipeline_profiler.precision.sweep import measure

    chosen = backend(args)
    data_notes, jobs = make_jobs(args, chosen)
    with progress_on_stderr() as progress:
        return measure(chosen, jobs, options(args, chosen), progress=progress, notes=data_notes)


def backend(args: argparse.Namespace) -> Backend:
    """The framework asked for."""
    if args.framework == "keras":
        from pipeline_profiler.precision.trainer_keras import KerasBackend

        return KerasBackend(args.device)
    from pipeline_profiler.precision.trainer_torch import TorchBackend

    return TorchBackend(args.device)


def options(args: argparse.Namespace, chosen: Backend) -> Options:
    """The options, with what suits the device where nothing was said."""
    from pipeline_profiler.precision.plan import Options
    from pipeline_profiler.precision.trainer import Recipe

    gpu = chosen.device == "cuda"
    return Options(
        batch_sizes=sizes(args.batch_sizes or (GPU_SIZES if gpu else CPU_SIZES)),
        precisions=words(args.precisions or (GPU_PRECISIONS if gpu else CPU_PRECISIONS)),
        loss_scales=words(args.loss_scale),
        recipe=Recipe(
            args.optimizer,
            (GPU_LR if gpu else CPU_LR) if args.lr is None else args.lr,
            args.channels_last,
            args.compile,
            args.seed,
        ),
        repeats=args.repeats,
        steps=args.steps,
        seconds=args.seconds or (GPU_SECONDS if gpu else CPU_SECONDS),
        parity_steps=args.parity_steps or (GPU_PARITY if gpu else CPU_PARITY),
        largest=True if args.largest else None,
    )


def words(text: str) -> tuple[str, ...]:
    """'fp32, bf16' -> ('fp32', 'bf16')."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def sizes(text: str) -> tuple[int, ...]:
    """'64,128' -> (64, 128)."""
    try:
        return tuple(int(word) for word in words(text))
    except ValueError:
        raise ProfileError(
            f"--batch-sizes takes whole numbers with commas, not '{text}'."
        ) from None


# --------------------------------------------------------------------------- models and data


def make_jobs(args: argparse.Namespace, chosen: Backend) -> tuple[list[str], list[Job]]:
    """The models with their data, and what is to be said about the data."""
    from pipeline_profiler.precision.plan import Job

    if args.loader and args.data:
        raise ProfileError("Give --loader or --data, not both.")
    notes: list[str] = []
    if args.loader:
        make_loader, classes = own_loader(args.loader), 10
    else:
        make_loader, data = folder_loader(args, chosen)
        classes, notes = data.classes, list(data.notes)
    models = make_models(args, classes)
    return notes, [Job(name, make, make_loader) for name, make in models]


def own_loader(text: str) -> Callable[[int], Any]:
    """The user's loader as a function of the batch size."""
    from pipeline_profiler.cli.user_code import target
    from pipeline_profiler.precision.data_source import sized

    make = target(text)
    return lambda size: sized(make, size)


def folder_loader(args: argparse.Namespace, chosen: Backend) -> tuple[Callable[[int], Any], Data]:
    """The shipped loader over a folder of images."""
    from pipeline_profiler.precision import image_data

    data = image_data.find_data(args.data)
    if args.framework == "keras":
        from pipeline_profiler.precision.trainer_keras import keras_loader

        return lambda size: keras_loader(data, size, args.workers), data
    pin = chosen.device == "cuda"
    return lambda size: image_data.torch_loader(data, size, args.workers, pin), data


def make_models(args: argparse.Namespace, classes: int) -> list[tuple[str, Callable[[], Any]]]:
    """The user's model, one of the shipped ones by name, or all of them."""
    if args.framework == "keras":
        shipped = keras_models(classes)
    else:
        from pipeline_profiler.precision.models import SHIPPED

        shipped = {name: _with_classes(make, classes) for name, make in SHIPPED.items()}
    if args.model is None:
        return [(name, make) for name, make in shipped.items() if name in SHIPPED_BY_DEFAULT]
    if args.model in shipped:
        return [(args.model, shipped[args.model])]
    if ":" not in args.model:
        known = ", ".join(shipped)
        raise ProfileError(
            f"'{args.model}' is no shipped model ({known}) and no FILE.py:FUNCTION of your own."
        )
    from pipeline_profiler.cli.user_code import target

    return [(args.model.rpartition(":")[2], target(args.model))]


def _with_classes(make: Callable[[int], Any], classes: int) -> Callable[[], Any]:
    return lambda: make(classes)


def keras_models(classes: int) -> dict[str, Callable[[], Any]]:
    """The shipped Keras model."""
    from pipeline_profiler.precision.models.resnet_keras import resnet18

    return {"resnet18": lambda: resnet18(classes)}


# ---------------------------------------------------------------------------------- progress


@contextlib.contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """A bar with ETA on a terminal that has rich, else plain lines."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lines()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lines()
        return
    columns = (
        *(BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f}")),
        *(TimeRemainingColumn(), TextColumn("{task.description}")),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1)
        yield lambda done, total, text: bar.update(
            task, completed=done, total=max(total, 1), description=text
        )


def lines(clock: Callable[[], float] = time.monotonic) -> Progress:
    """A line for each tenth of the work, and at least every LINE_EVERY_S seconds."""
    shown, last = -1, clock()

    def say(done: int, total: int, text: str) -> None:
        nonlocal shown, last
        tenth = 10 * done // max(total, 1)
        if tenth != shown or clock() - last > LINE_EVERY_S:
            shown, last = tenth, clock()
            sys.stderr.write(f"{done} of {total}: {text}\n")
            sys.stderr.flush()

    return say
