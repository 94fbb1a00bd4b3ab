"""Run a script in a copy of its folder and redirect its other writes, where overlays are absent.

`copy_folder` makes the copy, `uncovered` names what could still be changed, and `hold` redirects
writes and deletions inside the script's process. Standard library alone.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

MOST_BYTES, MOST_ENTRIES, LARGE_FOLDER = 200 << 20, 20_000, 1000
NOT_COPIED = {".git", ".venv", "venv", "node_modules", "__pycache__"}
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
SYSTEM_PATHS = ("/dev/", "/proc/", "/sys/")
# Functions whose compiled code opens a path: module -> (name, position of the path, mode).
WRITERS = {
    "torch.serialization": [("save", 1, "w")],
    "cv2": [("imwrite", 0, "w"), ("VideoWriter", 0, "w"), ("imread", 0, "r")],
    "h5py._hl.files": [("File.__init__", 1, "r")],
    "pandas.io.parquet": [("to_parquet", 1, "w"), ("read_parquet", 0, "r")],
    "pandas.io.feather_format": [("to_feather", 1, "w"), ("read_feather", 0, "r")],
    "pandas.io.pytables": [("HDFStore.__init__", 1, "a")],
    "safetensors.torch": [("save_file", 1, "w"), ("load_file", 0, "r")],
}
HOOKS = dict.fromkeys(WRITERS, f"{__name__}:redirect_module")
# Other libraries whose compiled code opens files.
COMPILED = {
    "duckdb", "jax", "keras", "lightgbm", "lmdb", "netCDF4", "orbax", "polars", "pyarrow",
    "SimpleITK", "soundfile", "sqlite3", "tables", "tensorflow", "torchaudio", "xgboost", "zarr",
}  # fmt: skip
IMPORT = re.compile(r"\s*(?:from\s+([\w.]+)\s+)?import\s+(.+)")
OUTPUT = re.compile(
    r"out|save|log|ckpt|checkpoint|result|export|write|dump|to_\w+\(|open\(|mkdir|makedirs|File\(",
    re.IGNORECASE,
)
ABSOLUTE = re.compile(r"""["'](/\w[^"']*|~[/\\][^"']*|[A-Za-z]:[/\\][^"']*)["']""")


def copy_folder(source: str, target: str) -> list[str]:
    """Copy a folder; return its large folders, which are links.

    Files are copied, the smallest first, up to MOST_BYTES; the others are links, too.
    """
    linked, files, entries = list[str](), list[tuple[int, str]](), 0
    for folder, folders, names in os.walk(source):
        place = os.path.join(target, os.path.relpath(folder, source))
        own = os.path.dirname(target)  # may lie below, as where the script runs in /tmp
        folders[:] = [n for n in folders if n not in NOT_COPIED and f"{folder}/{n}" != own]
        entries += len(folders) + len(names)
        if folder != source and (len(names) > LARGE_FOLDER or entries > MOST_ENTRIES):
            os.symlink(folder, place)
            linked.append(folder)
            folders.clear()
            continue
        os.makedirs(place, exist_ok=True)
        for name in (name for name in folders if os.path.islink(f"{folder}/{name}")):
            os.symlink(os.path.realpath(f"{folder}/{name}"), f"{place}/{name}")
        files += [(os.path.getsize(p), p) for n in names if os.path.isfile(p := f"{folder}/{n}")]
    copied = 0
    for size, path in sorted(files):
        copied += size
        place = os.path.join(target, os.path.relpath(path, source))
        try:
            (shutil.copy2 if copied <= MOST_BYTES else os.symlink)(path, place)
        except PermissionError:  # a file of another user
            os.symlink(path, place)
    return linked


def changes_of(source: str, copy: str) -> Iterator[str]:
    """'+ path' of what was written in the copy of a folder, and '- path' of what was deleted."""
    for folder, folders, names in os.walk(copy):
        original = os.path.normpath(os.path.join(source, os.path.relpath(folder, copy)))
        before = set(os.listdir(original)) - NOT_COPIED if os.path.isdir(original) else set()
        yield from (f"- {original}/{name}" for name in before - {*folders, *names})
        for name in names:
            if not _is_same(f"{folder}/{name}", f"{original}/{name}"):
                yield f"+ {original}/{name}"


def _is_same(path: str, original: str) -> bool:
    if not os.path.isfile(original):
        return False
    now, before = os.stat(path), os.stat(original)
    return (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def uncovered(folder: Path, script: str) -> list[str]:
    """What the script (or module) and its own modules could change all the same, by line."""
    found, seen = list[str](), set[Path]()
    waiting = [folder / script, folder / f"{script.replace('.', '/')}.py"]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            where = f"{path.name}:{number}"
            if modules := _imported(line):
                waiting += [folder / f"{module.replace('.', '/')}.py" for module in modules]
                libraries = {module.partition(".")[0] for module in modules} & COMPILED
                found += [f"{lib} writes by compiled code ({where})" for lib in sorted(libraries)]
            elif OUTPUT.search(line) and (absolute := ABSOLUTE.search(line)):
                found.append(f"{absolute[1]} ({where})")
    return found


def _imported(line: str) -> list[str]:
    """Return the modules that a line of Python may import."""
    if (match := IMPORT.match(line)) is None:
        return []
    names = [name.split()[0] for name in match[2].strip("( ").split(",") if name.strip(" )#")]
    return [match[1], *(f"{match[1]}.{name}" for name in names)] if match[1] else names


class _Redirection:
    """Paths outside of the copy become paths in `scratch`, once the script writes them."""

    def __init__(self, scratch: str, copy: str) -> None:
        self.scratch, self.copy = scratch, copy
        self.plain = {name: getattr(os, name) for name in ("open", "stat", "mkdir")}
        self.plain_open = builtins.open
        os.makedirs(scratch, exist_ok=True)
        self.log = os.open(f"{scratch}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, text: str) -> None:
        os.write(self.log, f"{text}\n".encode(errors="replace"))

    def place_of(self, path: Any) -> str | None:
        """The path in scratch; None for what is not redirected."""
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return None
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        full = os.path.join(os.path.realpath(folder), name)
        own = (*SYSTEM_PATHS, os.path.dirname(self.scratch) + os.sep, self.copy + os.sep)
        return None if full.startswith(own) else self.scratch + os.path.splitdrive(full)[1]

    def read_path(self, path: Any) -> Any:
        place = self.place_of(path)
        try:
            return path if place is None or not self.plain["stat"](place) else place
        except OSError:
            return path

    def write_path(self, path: Any, keep: bool = True) -> Any:
        """Where a path is written; `keep`: its content comes along."""
        place, current = self.place_of(path), self.read_path(path)
        if place is not None:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            self.note(f"+ {os.path.abspath(os.fsdecode(path))}")
        elif not isinstance(path, int) and os.path.islink(path):  # in the copy
            place, current = path, os.path.realpath(path)
            os.unlink(path)
        if keep and place is not None and place != current and os.path.isfile(current):
            shutil.copyfile(current, place)
        return path if place is None else place

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        writes = any(letter in mode for letter in "wax+")
        place = self.write_path(file, "w" not in mode) if writes else self.read_path(file)
        return self.plain_open(place, mode, *args, **kwargs)

    def open_low(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        writes = flags & WRITE_FLAGS and not kwargs.get("dir_fd")
        place = self.write_path(path, not flags & os.O_TRUNC) if writes else self.read_path(path)
        return int(self.plain["open"](place, flags, *args, **kwargs))

    def delete(self, plain: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> None:
        place = self.read_path(path)
        if place != path or self.place_of(path) is None:
            plain(place, *args, **kwargs)
        else:
            self.note(f"- {os.path.abspath(os.fsdecode(path))}")

    def rename(self, plain: Callable[..., Any], source: Any, target: Any, **_: Any) -> None:
        if self.place_of(source) is None and self.place_of(target) is None:
            plain(source, target)
        elif os.path.isfile(origin := self.read_path(source)):
            shutil.copyfile(origin, self.write_path(target, keep=False))
            os.unlink(source)

    def make_folder(self, path: Any, *args: Any, **kwargs: Any) -> None:
        place = self.place_of(path)
        if place is None or os.path.exists(path):
            self.plain["mkdir"](path, *args, **kwargs)
        else:
            os.makedirs(place)

    def started(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            command = args[1] if event == "subprocess.Popen" else args[0]
            words = command if isinstance(command, list | tuple) else [command]
            self.note(f"! {' '.join(os.fsdecode(word) for word in words)[:200]}")


active = list[_Redirection]()  # the one of this process


def hold(scratch: str, copy: str) -> None:
    """Redirect what writes outside of `copy`, in this process and in every Python it starts."""
    to = _Redirection(scratch, copy)
    active[:] = [to]
    replaced: dict[tuple[Any, str], Callable[..., Any]] = {
        (builtins, "open"): to.open,
        (io, "open"): to.open,
        (os, "open"): to.open_low,
        (os, "mkdir"): to.make_folder,
        (os, "stat"): lambda path, **options: to.plain["stat"](to.read_path(path), **options),
        (shutil, "rmtree"): functools.partial(to.delete, shutil.rmtree),
    }
    for name in ("unlink", "remove", "rmdir"):
        replaced[os, name] = functools.partial(to.delete, getattr(os, name))
    for name in ("rename", "replace"):
        replaced[os, name] = functools.partial(to.rename, getattr(os, name))
    for (owner, name), function in replaced.items():
        setattr(owner, name, function)
    sys.addaudithook(to.started)


def redirect_module(module: Any) -> None:
    """Redirect the compiled writers of a module that was just imported."""
    for dotted, position, mode in WRITERS[module.__name__]:
        owner, _, name = dotted.rpartition(".")
        holder = attrgetter(owner)(module) if owner else module
        if hasattr(holder, name):
            setattr(holder, name, _redirected(getattr(holder, name), position, mode))


def _redirected(plain: Callable[..., Any], position: int, default: str) -> Callable[..., Any]:
    @functools.wraps(plain)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        path, after = args[position : position + 1], args[position + 1 : position + 2]
        mode = kwargs.get("mode") or next((m for m in after if m in ("r", "r+", "a", "w")), default)
        if path and isinstance(path[0], str | os.PathLike):
            to = active[0]
            place = to.read_path(path[0]) if mode == "r" else to.write_path(path[0], mode != "w")
            args = (*args[:position], place, *args[position + 1 :])
        return plain(*args, **kwargs)

    return redirected
