"""The `dataset-preflight` command: parse options, call the page once, format the result."""

from __future__ import annotations

import argparse
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from audit.errors import AuditError, UsageError
from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.ending import Ending, ExitCode, strongest
from pipeline_profiler.profiling.record.errors import ProfileError

ENDING = Ending("dataset-preflight")
USAGE = "dataset-preflight DATA [options] [-- python train.py ...]"
ABOUT = (
    "May I start this training? Looks at data, evaluation, input pipeline, precision and training "
    "code, and shows what to fix first."
)
DATA_HELP = "what `audit scan` takes: a folder, or train=A test=B"
FILE_HELP = "write .html, .json, .sarif, .xml (JUnit) or .txt; repeatable"
OPTIONS = (
    ("--out", "RUN", "folder of the results (default: runs/NAME)"),
    ("--loader", "FILE.py:FUNCTION", "a loader instead of a script"),
    ("--step", "FILE.py:FUNCTION", "the training step beside --loader"),
    ("--emulate-step-ms", "MS", "a step beside --loader that only sleeps"),
    ("--predictions", "FILE", "predictions of a model, as `audit scan` takes them"),
    ("--min-difference", "SHARE", "difference that the evaluation must show, such as 0.02"),
)
SWITCHES = (
    ("--quick", "at most 3 minutes for 5,000 images"),
    ("--again", "run only the parts whose inputs changed"),
    ("--strict", "exit with 1 for skipped and inconclusive rows, too"),
    ("--json", "print the JSON document"),
    ("--yes", "run the script although some of its file changes may be real"),
    ("--trace", "print the traceback of an internal error"),
)


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    p = argparse.ArgumentParser(prog="dataset-preflight", usage=USAGE, description=ABOUT)
    p.add_argument("data", nargs="+", metavar="DATA", help=DATA_HELP)
    for flag, metavar, text in OPTIONS:
        numeric = float if metavar in ("MS", "SHARE") else str
        p.add_argument(flag, metavar=metavar, help=text, type=numeric, default=numeric())
    p.add_argument("-o", dest="output", action="append", metavar="FILE", help=FILE_HELP)
    for flag, text in SWITCHES:
        p.add_argument(flag, action="store_true", help=text)
    return p


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    terminal.prepare_streams()
    words = list(sys.argv[1:] if words is None else words)
    end = words.index("--") if "--" in words else len(words)
    args = parser().parse_args(words[:end])
    # after the options, because they load polars and scipy
    from dataset_preflight.page.documents import FORMATS, to_json, to_screen
    from dataset_preflight.page.runner import run_page
    from dataset_preflight.request import Request

    request = Request(
        tuple(args.data), args.out, tuple(words[end + 1 :]), args.loader, args.step,
        args.emulate_step_ms, args.predictions, args.min_difference, args.quick, args.again,
        args.yes,
    )  # fmt: skip
    try:
        unknown = [name for name in args.output or () if Path(name).suffix not in FORMATS]
        if unknown:
            raise UsageError(f"{unknown[0]}: -o takes names that end in {', '.join(FORMATS)}.")
        repeated = [*(w for w in words[:end] if w != "--again"), "--again", *words[end:]]
        again = shlex.join(["dataset-preflight", *repeated])
        page, interrupted = run_page(request, terminal.show_progress, again)
        terminal.show_progress("")
        terminal.write_text(to_json(page) if args.json else to_screen(page))
        for name in args.output or ():
            Path(name).write_text(FORMATS[Path(name).suffix](page))
        code = page.exit_code(args.strict)
        return strongest(code, ExitCode.INTERRUPTED) if interrupted else code
    except (UsageError, ProfileError) as error:
        return ENDING.end(str(error), ExitCode.USAGE)
    except (AuditError, OSError) as error:
        return ENDING.machine_failed(str(error))
    except Exception as error:  # noqa: BLE001
        if args.trace:
            traceback.print_exc()
        return ENDING.program_failed(f"{type(error).__name__}: {error}")
    finally:
        terminal.close_streams()
