"""Run a command so that what it writes, deletes and renames goes to scratch, on Linux.

The command gets its own namespace of mounts, in which an overlay covers each folder; /dev, /proc,
/sys and the network stay. Standard library alone; arguments: a folder for the answers, then the
command.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

NEW_NS, NEW_USER = 0x00020000, 0x10000000
BIND, REC, PRIVATE, REMOUNT, READ_ONLY = 4096, 16384, 1 << 18, 32, 1
DEATH_SIGNAL = 1  # of prctl: the script ends with us
REFUSED = 97  # the exit code where no name space can be made
AS_THEY_ARE = ("/dev", "/proc", "/sys")
MOST_NAMED, COPIED = 1000, 10_000_000


def main(argv: Sequence[str]) -> int:
    """Hold back what the command changes; its exit code, or REFUSED before it was started."""
    folder, command = argv[0], list(argv[1:])
    here, scratch = os.getcwd(), os.path.join(folder, "scratch")
    os.mkdir(scratch)
    try:
        _leave_mounts()
        cover = Cover(scratch, folder)
    except OSError as error:
        sys.stderr.write(f"pipeline-profiler: {error}\n")
        return REFUSED
    child = os.fork()
    if not child:
        _libc().prctl(DEATH_SIGNAL, signal.SIGKILL)
        os.chroot(cover.root)
        os.chdir(here)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"pipeline-profiler: {command[0]}: {error}\n")
            os._exit(127)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal gives it to the script as well
    _, status = os.waitpid(child, 0)
    changes = sorted(cover.changes())
    told = {"changes": changes[:MOST_NAMED], "count": len(changes), "not_held": cover.left}
    Path(folder, "held.back").write_text(json.dumps(told))
    subprocess.run(["chmod", "-R", "u+rwX", cover.layers], check=False, capture_output=True)
    shutil.rmtree(cover.layers, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: Any) -> None:
    if getattr(_libc(), name)(*args) != 0:
        number, on = ctypes.get_errno(), args[1:2] or args
        raise OSError(number, f"{name} of {on[0]}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    texts = [text.encode() or None for text in (source, target, kind, options)]
    _call("mount", *texts[:3], flags, texts[3])


def _leave_mounts() -> None:
    """Take mounts of our own, as root or as a user who is one in a name space."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", NEW_NS)
    except OSError:
        _call("unshare", NEW_NS | NEW_USER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", flags=REC | PRIVATE)


class Cover:
    """The new root in memory: folders without mounts below are overlays, others are made anew.

    left: what stays writable. Locked mounts below a folder prevent an overlay.
    """

    def __init__(self, scratch: str, folder: str) -> None:
        self.root, self.folder, self.left = os.path.join(scratch, "new"), folder, list[str]()
        self.places: list[str] = []  # of the overlays, by number
        _mount("tmpfs", scratch, "tmpfs", options="mode=755")
        os.mkdir(self.root)
        # a layer lies on disk, and in memory where the disk is an overlay itself, as in a container
        self.layers = next(filter(_bears_layers, (f"{folder}/layers", f"{scratch}/layers")), "")
        if not self.layers:
            raise OSError("no file system here takes the changes of an overlay")
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounts = {line.split(" ")[4].encode().decode("unicode_escape") for line in lines}
        # without the mounts of this process
        self.mounts = {m for m in mounts if not m.startswith(folder)} | {folder}
        self._add("/")
        self.made = set(self._own())

    def _add(self, place: str) -> None:
        target = self.root + place.rstrip("/")
        if place in AS_THEY_ARE or place == self.folder:
            os.makedirs(target, exist_ok=True)
            _mount(place, target, flags=BIND | REC)
        elif os.path.islink(place):
            os.symlink(os.readlink(place), target)
        elif not os.path.isdir(place):
            self._add_file(place, target)
        elif any(m.startswith(f"{place.rstrip('/')}/") for m in self.mounts):
            os.makedirs(target, exist_ok=True)
            os.chmod(target, stat.S_IMODE(os.stat(place).st_mode))
            for name in os.listdir(place):
                with contextlib.suppress(FileNotFoundError):  # another program's, gone by now
                    self._add(os.path.join(place, name))
        else:
            os.makedirs(target, exist_ok=True)
            self._add_layer(place, target)

    def _add_file(self, place: str, target: str) -> None:
        state = os.stat(place)
        if stat.S_ISREG(state.st_mode) and state.st_size <= COPIED and os.access(place, os.R_OK):
            shutil.copy2(place, target)
        else:
            Path(target).touch()
            self._bind(place, target)

    def _add_layer(self, place: str, target: str) -> None:
        number = len(self.places)
        upper, work = (os.path.join(self.layers, f"{kind}{number}") for kind in "uw")
        os.makedirs(upper, exist_ok=True)  # of a folder that was gone by now
        os.makedirs(work, exist_ok=True)
        os.chmod(upper, stat.S_IMODE(os.stat(place).st_mode))
        layers = f"lowerdir={_escaped(place)},upperdir={upper},workdir={work}"
        if _is_overlaid(target, layers):
            self.places.append(place)
        else:  # such as a file system that may not lie under an overlay
            self._bind(place, target)

    def _bind(self, place: str, target: str) -> None:
        """As it is, but not to be written to."""
        _mount(place, target, flags=BIND | REC)
        try:
            _mount("none", target, flags=REMOUNT | BIND | READ_ONLY)
        except OSError:
            if os.access(place, os.W_OK):
                self.left.append(place)

    def _own(self) -> Iterator[str]:
        """What lies in memory itself, between the overlays."""
        device = os.stat(self.root).st_dev
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if os.lstat(f"{folder}/{f}").st_dev == device]
            yield from (f"{folder}/{file}".removeprefix(self.root) for file in files)

    def changes(self) -> Iterator[str]:
        """'+ path' of what was written and '- path' of what was deleted."""
        now = set(self._own())
        yield from (f"+ {path}" for path in now - self.made)
        yield from (f"- {path}" for path in self.made - now)
        for number, place in enumerate(self.places):
            layer = os.path.join(self.layers, f"u{number}")
            for folder, folders, files in os.walk(layer):
                where = place.rstrip("/") + folder.removeprefix(layer)
                there = {*folders, *files}
                if _is_opaque(folder) and os.path.isdir(where):  # deleted as a whole, made anew
                    yield from (f"- {where}/{n}" for n in os.listdir(where) if n not in there)
                for name in (*files, *(f for f in folders if os.path.islink(f"{folder}/{f}"))):
                    state = os.lstat(f"{folder}/{name}")
                    gone = stat.S_ISCHR(state.st_mode) and state.st_rdev == 0
                    yield f"{'-' if gone else '+'} {where}/{name}"


def _bears_layers(base: str) -> bool:
    """Whether changes can be kept there: a folder that is deleted can be made anew."""
    lower, upper, work, target = (f"{base}/{name}" for name in ("l", "u", "w", "t"))
    for path in (f"{lower}/folder", upper, work, target):
        os.makedirs(path)
    if not _is_overlaid(target, f"lowerdir={lower},upperdir={upper},workdir={work}"):
        return False
    try:
        os.rmdir(f"{target}/folder")
        os.mkdir(f"{target}/folder")
    except OSError:
        return False
    return True


def _is_overlaid(target: str, layers: str) -> bool:
    # a user's overlay keeps its marks under names of the user's: without them it mounts, and fails
    of_one_user = Path("/proc/self/uid_map").read_text().split()[2] == "1"
    for options in (layers, f"{layers},userxattr")[:: -1 if of_one_user else 1]:
        with contextlib.suppress(OSError):
            _mount("overlay", target, "overlay", 0, options)
            return True
    return False


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _is_opaque(folder: str) -> bool:
    for name in ("trusted.overlay.opaque", "user.overlay.opaque"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"y":
                return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
