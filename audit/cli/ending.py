"""How a command ends: what goes wrong becomes one sentence and an exit code, never a traceback."""

from __future__ import annotations

import errno
import io
import os
import resource
import sys
from collections.abc import Callable

from dataset_preflight.foundation import terminal
from dataset_preflight.foundation.ending import Ending, ExitCode
from dataset_preflight.foundation.files import SpecialFileError
from dataset_preflight.foundation.terminal import visible

ENDING = Ending("audit", "Earlier results are unchanged")
LEAST_ADDRESS_SPACE = 4 << 30  # bytes


def exit_code_of(run: Callable[[], int | None]) -> int:
    """Run a command; says in a sentence what ended it, and returns the exit code."""
    from audit.errors import AuditError, MachineError, find_machine_error

    try:
        if problem := _shell_problem():
            return ENDING.end(problem, ExitCode.USAGE)
        code = int(run() or ExitCode.CLEAN)
        if code == ExitCode.INTERRUPTED:  # the parser's answer to Ctrl-C, which says nothing
            raise KeyboardInterrupt
        return code
    except MachineError as error:
        return ENDING.end(visible(str(error)), ExitCode.NO_RESULT)
    except AuditError as error:
        # what the machine ran out of is its turn, whatever sentence it became on the way
        code = ExitCode.NO_RESULT if find_machine_error(error) else ExitCode.USAGE
        return ENDING.end(visible(str(error)), code)
    except KeyboardInterrupt:
        terminal.write_message("\nStopped.")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.CLEAN
    except terminal.OutputError as error:
        sentence = f"the output cannot be written to stdout ({error})."
        return ENDING.end(f"{sentence} Saved results are kept.", ExitCode.NO_RESULT)
    except BaseException as error:  # noqa: BLE001 - a traceback in front of a user is a bug
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            return ExitCode.CLEAN  # the parser ends so where the reader of a help page left
        if machine := find_machine_error(error):
            _trace(error)
            return ENDING.end(visible(str(machine)), ExitCode.NO_RESULT)
        if isinstance(error, OSError):
            return _of_the_machine(error)
        return _wrong_call(error) or _internal(error)


def _shell_problem() -> str:
    """Return why no command can run in this shell, "" where one can."""
    try:
        os.getcwd()
    except OSError:
        return (
            "the current folder does not exist any more: change to another folder (`cd`) and run "
            "the command again."
        )
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or limit >= LEAST_ADDRESS_SPACE:
        return ""
    return (
        f"this shell limits the address space to {limit >> 20:,} MiB (`ulimit -v`), and the "
        f"libraries need {LEAST_ADDRESS_SPACE >> 20:,} MiB: raise it, or limit the memory of the "
        "container instead."
    )


def _wrong_call(error: BaseException) -> int | None:
    """Say what the parser of the command line says of a wrong call; None for another error."""
    if not (hasattr(error, "format_message") and hasattr(error, "show")):
        return None
    text = io.StringIO()
    error.show(file=text)
    terminal.write_message(text.getvalue().rstrip("\n"))
    return ExitCode.USAGE


# What a user can mend: a path, a length, a permission.
_MENDABLE = frozenset((
    errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST,
    errno.ENAMETOOLONG, errno.EROFS, errno.ELOOP, errno.ENOTEMPTY, errno.EBUSY,
))  # fmt: skip


def _of_the_machine(error: OSError) -> ExitCode:
    """Say what the operating system refused, and of which file."""
    _trace(error)
    what = visible(error.strerror or str(error))
    place = f"{visible(os.fsdecode(error.filename))}: " if error.filename else ""
    if error.errno in _MENDABLE or isinstance(error, SpecialFileError):
        return ENDING.end(f"{place}{what}. Check this path and your permissions.", ExitCode.USAGE)
    return ENDING.machine_failed(f"{place}{what}")


def _internal(error: BaseException) -> ExitCode:
    from audit.errors import error_place, error_text

    _trace(error)
    return ENDING.program_failed(f"{error_text(error)} ({error_place(error)})")


def _trace(error: BaseException) -> None:
    from audit.errors import error_trace

    if "--trace" in sys.argv:
        terminal.write_message(error_trace(error))
