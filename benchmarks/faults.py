"""Break things on purpose, and count what is lost.

    python benchmarks/faults.py strike [--repeats 3] [--only WORD] [--shard 0/2]
    python benchmarks/faults.py decisions [--kills 30]

Every fault strikes a real `audit` command on a small dataset: processes are killed, disks fill up,
files of the run are damaged, two writers meet, the dataset changes under a scan. Each is repeated
at random points, and proves that it happened: a kill that came after the end does not count. Then
the same scan runs again without a fault. Survived means that its index, findings and decisions
equal those of an undisturbed run row for row, and that no command on the way ended with a
traceback. The last line has the number of tries and the share that failed. Where a fault needs
root (a small disk of its own), it is left out without it. About 20 s a fault. `faulty` is what some
faults start: a scan or recheck that kills itself at one of its events, in a process of its own.
`decisions` kills `audit decide` at random moments of its run and of its writing.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing.connection
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from bench import AUDIT, ENVIRONMENT, ROOT, Document, hall, measures, shard_of

from audit.decisions.store import COPY, DATABASE, DecisionStore
from audit.run import store as stores
from audit.run.run_version import open_run
from audit.scanning import measuring, scanning
from audit.sources import open_source

sys.path.insert(0, str(ROOT))
from tests.warm import warm_line

HOW = ("mtime_ns", "ctime_ns", "file_key", "seconds", "memory_growth", "completeness")
"""Columns that tell when, at what cost or by which way something was found; no others differ."""
WAYS = ("meta", "relate_facts", "rechecks")
"""Tables that do: a later scan takes pairs over, and keeps what was looked at in full size."""
Index = dict[str, pl.DataFrame]
EMPTY = pl.DataFrame()
app = hall(__doc__)


class NotPossibleError(Exception):
    """The fault cannot be made on this machine."""


@dataclass(frozen=True)
class Done:
    """A command that ended: its exit code (negative: killed by a signal) and what it said."""

    code: int
    said: str


@dataclass
class Scene:
    """One repetition: a copy of the dataset and of a run, and every command that was tried."""

    folder: Path
    data: Path
    run: Path
    random: random.Random
    commands: list[Done] = field(default_factory=list)

    def start(
        self, *words: object, prefix: str = "", env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start an `audit` command, to be disturbed; `prefix` is shell before it, as a ulimit."""
        shell = ["bash", "-c", f'{prefix} exec "$@"', "bash"] if prefix else []
        return self.started([*shell, *AUDIT, *map(str, words)], ENVIRONMENT | (env or {}))

    def started(
        self, line: list[str], environment: dict[str, str] = ENVIRONMENT
    ) -> subprocess.Popen[str]:
        """Start a command line."""
        return subprocess.Popen(
            line, text=True, errors="replace", env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def begin(self, verb: str = "scan", **options: Any) -> subprocess.Popen[str]:
        """Start a scan of the dataset into the run, or a recheck of it."""
        words = (self.data, "--out", self.run) if verb == "scan" else (self.run,)
        return self.start(verb, *words, "--fail-on", "never", **options)

    def audit(self, *words: object) -> Done:
        """Run an `audit` command to its end, without the seconds of a start."""
        return self.end(self.started([*warm_line("audit"), *map(str, words)]))

    def scan(self, **options: Any) -> Done:
        """Scan the dataset into the run."""
        return self.end(self.begin(**options))

    def end(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a command that was started; keep how it ended."""
        said, _ = process.communicate(timeout=600)
        self.commands.append(Done(process.returncode, said or ""))
        return self.commands[-1]

    def faulty(self, verb: str, kind: str, at: int) -> Done:
        """Run a scan or recheck that kills itself at its `at`-th event of a kind."""
        line = [sys.executable, __file__, "faulty", verb, str(self.data), str(self.run)]
        return self.end(self.started([*line, kind, str(at)]))


Strike = Callable[..., Any]


class Faults(dict[str, Strike]):
    """What strikes a scene, by what the table says of it."""

    def add(self, words: str, strike: Strike, *given: Any, **named: Any) -> None:
        """Register a fault: what follows the function is given to it after the scene."""
        self[words] = lambda scene: strike(scene, *given, **named)


FAULTS = Faults()  # each returns whether it really happened
fault = FAULTS.add


# ---- killed ----

EVENTS: dict[str, list[tuple[Any, str]]] = {
    "sync": [(os, "fsync")],
    "rename": [(os, "replace"), (os, "rename"), (pathlib.Path, "rename"), (shutil, "rmtree")],
    "statement": [(stores.Store, "execute"), (stores.Store, "append")],
    "answer of a worker": [(multiprocessing.connection.Connection, "recv")],
}


class Countdown:
    """Counts events, and kills this process at one of them."""

    def __init__(self, at: int) -> None:
        """Kill at event number `at`, from 0; never where it is negative."""
        self.at, self.seen = at, 0

    def watch(self, owner: Any, name: str) -> None:
        """Count the calls of a function."""
        original = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            if self.seen == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.seen += 1
            return original(*arguments, **named)

        setattr(owner, name, counted)


@app.command(hidden=True)
def faulty(verb: str, data: str, run: Path, kind: str, number: int) -> None:
    """Scan or recheck, and die at event NUMBER of a kind; `count-KIND` prints their number."""
    countdown = Countdown(-1 if kind.startswith("count-") else number)
    for owner, name in EVENTS[kind.removeprefix("count-")]:
        countdown.watch(owner, name)
    measuring.APPEND_ROWS = measuring.CHUNK_FILES = 4  # several appends in a small dataset
    if verb == "scan":
        scanning.scan(open_source([data]), run)
    else:
        scanning.recheck(run)
    print(countdown.seen)


COUNTED: dict[tuple[str, str], int] = {}
"""How many events there are of a kind, which does not change."""


def kill_at_event(scene: Scene, verb: str, kind: str) -> bool:
    """Kill a scan or recheck at one of its events, at random."""
    if (verb, kind) not in COUNTED:
        COUNTED[verb, kind] = int(scene.faulty(verb, f"count-{kind}", 0).said.split()[-1])
        restore_start(scene)
    done = scene.faulty(verb, kind, scene.random.randrange(COUNTED[verb, kind]))
    return done.code == -signal.SIGKILL


for _verb in ("scan", "recheck"):
    for _kind in EVENTS:
        if _verb == "scan" or _kind in ("sync", "statement", "rename"):
            fault(f"`audit {_verb}` is killed at a random {_kind}", kill_at_event, _verb, _kind)


def signal_during(scene: Scene, verb: str, number: signal.Signals) -> bool:
    """Send a signal at a random moment of a command."""
    process = scene.begin(verb)
    time.sleep(scene.random.uniform(0.3, 3.0))
    alive = process.poll() is None
    process.send_signal(number)
    scene.end(process)
    return alive


for _number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    _words = f"`audit scan` gets {_number.name} at a random moment"
    fault(_words, signal_during, "scan", _number)
fault("`audit recheck` gets SIGINT at a random moment", signal_during, "recheck", signal.SIGINT)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    line = ["pgrep", "-P", str(process.pid), "-f", "audit.picture.worker"]
    out = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False).stdout
    return [int(number) for number in out.split()]


def hit_workers(
    scene: Scene, number: signal.Signals, every: bool, delay: tuple[float, float] = (0.2, 1.5)
) -> bool:
    """Send a signal to one or all workers of a scan some time after the first is seen."""
    process, hit = scene.begin(), 0
    while process.poll() is None and not workers_of(process):
        time.sleep(0.005)
    time.sleep(scene.random.uniform(*delay))
    found = workers_of(process)
    for worker in found if every else scene.random.sample(found, min(1, len(found))):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, number)
            hit += 1
    scene.end(process)
    return hit > 0


_KILL, _SOON = signal.SIGKILL, (0.0, 0.02)
fault("a worker is killed as by the system's memory killer", hit_workers, _KILL, every=False)
fault("all workers are killed at once", hit_workers, _KILL, every=True)
fault("a worker is killed before it is ready", hit_workers, _KILL, every=True, delay=_SOON)
fault("a worker dies of SIGSEGV", hit_workers, signal.SIGSEGV, every=False)
fault("a worker dies of SIGABRT", hit_workers, signal.SIGABRT, every=False)


def suspend(scene: Scene) -> bool:
    process = scene.begin()
    time.sleep(scene.random.uniform(0.5, 2.0))
    alive = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.0)
        process.send_signal(signal.SIGCONT)
    scene.end(process)
    return alive


def kill_twice(scene: Scene) -> bool:
    first, second = (signal_during(scene, "scan", signal.SIGKILL) for _ in range(2))
    return first and second


fault("the scan is suspended for two seconds (SIGSTOP, SIGCONT)", suspend)
fault("two scans in a row are killed", kill_twice)


# ---- the machine ----


@contextlib.contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[Path]:
    """Mount a disk of this size there."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        raise NotPossibleError("needs root")
    line = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", str(folder)]
    made = subprocess.run(line, check=False, capture_output=True)
    if made.returncode:
        raise NotPossibleError("mounting is not allowed")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def disk_full(scene: Scene, share: tuple[float, float], *, fresh: bool) -> bool:
    """Scan into a disk that holds a random share of what a run takes, then make room."""
    size = sum(f.stat().st_size for f in scene.run.rglob("*") if f.is_file()) // 1024
    kept, disk, saved = scene.run, scene.folder / "disk", scene.folder / "saved"
    room = int(size * scene.random.uniform(*share)) + (0 if fresh else size)
    with small_disk(disk, max(room, 16)):
        scene.run = disk / "run"
        if not fresh:
            shutil.copytree(kept, scene.run)
        done = scene.scan()
        happened = done.code != 0 and ("full" in done.said or "space" in done.said.lower())
        shutil.copytree(scene.run, saved, ignore_dangling_symlinks=True)
    if fresh:
        shutil.copy(kept / DATABASE, saved / DATABASE)
    shutil.rmtree(kept)
    scene.run = saved.rename(kept)
    return happened


_LATER = "the disk fills up at a random point of a later scan"
fault("no room for the first bytes of a new run", disk_full, (0.0, 0.05), fresh=True)
fault("the disk fills up at a random point of a first scan", disk_full, (0.1, 0.9), fresh=True)
fault(_LATER, disk_full, (0.05, 0.7), fresh=False)


def temporary_full(scene: Scene) -> bool:
    with small_disk(scene.folder / "tmp", 16) as folder:
        (folder / "filler").write_bytes(bytes(16 << 10))
        return scene.scan(env={"TMPDIR": str(folder)}).code in (0, 4)


def temporary_missing(scene: Scene) -> bool:
    return scene.scan(env={"TMPDIR": str(scene.folder / "none")}).code == 0


def under_limit(scene: Scene, prefix: str) -> bool:
    """Scan under a limit of the shell; whatever comes of it, the next scan must be whole."""
    scene.scan(prefix=prefix)
    return True


fault("the folder for temporary files is full", temporary_full)
fault("the folder for temporary files does not exist", temporary_missing)
for _files in (16, 24, 32, 48):
    _limit = f"ulimit -n {_files}"
    fault(f"at most {_files} files may be open (`{_limit}`)", under_limit, f"{_limit};")
for _mib in (300, 1000, 3000):
    fault(f"`ulimit -v` of {_mib} MiB", under_limit, f"ulimit -v {_mib * 1024};")
fault("no file may grow beyond 100 kB (`ulimit -f`)", under_limit, "ulimit -f 100;")
fault("stdin, stdout and stderr are closed", under_limit, "exec <&- >&- 2>&-;")
fault("stdout is a full device", under_limit, "exec >/dev/full;")


def read_only_run(scene: Scene) -> bool:
    with small_disk(scene.folder / "ro", 65536) as disk:
        shutil.copytree(scene.run, disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        kept, scene.run = scene.run, disk / "run"
        codes = [scene.scan().code, scene.audit("recheck", scene.run).code]
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        scene.run = kept
    return codes == [2, 2]


def deleted_folder(scene: Scene) -> bool:
    gone = scene.folder / "gone"
    gone.mkdir()
    return under_limit(scene, f"cd {gone} && rmdir {gone} &&")


WRITING = (
    "decide RUN NAME --as drop", "decide RUN --undo", "recheck RUN", "export RUN --out DISK/tables",
    "export RUN --plan DISK/plan.json",
    "report RUN -o DISK/report.html", "report RUN -o DISK/report.json",
)  # fmt: skip


def writers_without_room(scene: Scene) -> bool:
    """Let every command that writes meet a full disk; each says that the machine has failed."""
    kept, name = scene.run, next(p for p in sorted(scene.data.rglob("*.jpg"))).name
    with small_disk(scene.folder / "disk", 32768) as disk:
        shutil.copytree(kept, disk / "run")
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        places = {"RUN": disk / "run", "NAME": name, "DISK": disk}
        codes = [
            scene.audit(*(_placed(word, places) for word in line.split())).code for line in WRITING
        ]
    return codes == [4] * len(WRITING)


def _placed(word: str, places: dict[str, Any]) -> str:
    first, _, rest = word.partition("/")
    return "/".join([str(places.get(first, first)), *([rest] if rest else [])])


def other_user(scene: Scene, rights: str) -> bool:
    """Let another user read and write a run that he may only read, or not even that."""
    if os.geteuid() != 0:
        raise NotPossibleError("needs root")
    run = Path(shutil.copytree(scene.run, scene.folder / "theirs"))
    subprocess.run(["chmod", "-R", rights, str(run)], check=True)
    subprocess.run(["chown", "-R", "65534:65534", str(run)], check=True)
    # root without its privilege over files is another user to the owner of these
    become = 'set -- setpriv --bounding-set=-dac_override,-dac_read_search "$@";'
    codes = [
        scene.end(scene.start(*words, prefix=become)).code
        for words in (
            ("report", run), ("decide", run, "--log"), ("verify", run), ("recheck", run),
            ("decide", run, "x", "--as", "keep"), ("scan", scene.data, "--out", run),
        )
    ]  # fmt: skip
    return codes[3:] == [2, 2, 2] and all(code in (0, 1, 2, 4) for code in codes)


fault("every command that writes meets a full disk", writers_without_room)
fault("another user may read the run only", other_user, "a+rX,go-w")
fault("another user may not read the run", other_user, "go-rwx")
fault("the run's folder is on a read-only disk", read_only_run)
fault("the folder where the user stands is deleted", deleted_folder)


# ---- what lies on the disk is damaged ----


def generation(scene: Scene) -> Path:
    return scene.run / str(json.loads((scene.run / "CURRENT").read_text())["generation"])


def overwrite(path: Path, rng: random.Random, how: str) -> bool:
    """Damage a file; returns whether its bytes are others now."""
    before = path.read_bytes()
    size = len(before)
    if how == "removed":
        path.unlink()
        return True
    after = b""
    if how == "truncated":
        after = before[: rng.randrange(1, max(size, 2))]
    elif how == "header":
        after = rng.randbytes(min(size, 4096)) + before[4096:]
    elif how == "a bit":
        at = rng.randrange(size)
        after = before[:at] + bytes([before[at] ^ 1 << rng.randrange(8)]) + before[at + 1 :]
    elif how == "middle":
        start = rng.randrange(size // 4, max(size // 2, size // 4 + 1))
        noise = rng.randbytes(min(4096, size - start))
        after = before[:start] + noise + before[start + 4096 :]
    path.write_bytes(after)
    return after != before


def damaged(scene: Scene, find: Callable[[Scene], Path], how: str) -> bool:
    """Damage a file of the run, ask for a report, and verify."""
    happened = overwrite(find(scene), scene.random, how)
    scene.audit("report", scene.run)
    scene.audit("verify", scene.run)
    scene.audit("decide", scene.run, "--from", scene.run / COPY)  # refused without damage
    return happened


def measurements_file(scene: Scene) -> Path:
    return generation(scene) / "measurements.duckdb"


def findings_file(scene: Scene) -> Path:
    return generation(scene) / str(json.loads((scene.run / "CURRENT").read_text())["findings"])


def signature_part(scene: Scene) -> Path:
    parts = [p for p in scene.run.rglob("*") if p.is_file() and "signature" in str(p)]
    return scene.random.choice(sorted(parts))


def of_run(name: str) -> Callable[[Scene], Path]:
    """Return what finds a file of the run's own folder."""
    return lambda scene: scene.run / name


for _name, _find, _ways in (
    ("measurements.duckdb", measurements_file, "removed emptied truncated header middle"),
    ("the findings file", findings_file, "removed emptied truncated header"),
    ("a file of signatures", signature_part, "removed emptied truncated middle"),
    ("the decisions", of_run(DATABASE), "removed emptied truncated header"),
):
    for _how in _ways.split():
        fault(f"{_name}: {_how}", damaged, _find, _how)
for _name, _find in (
    ("measurements.duckdb", measurements_file),
    ("the findings file", findings_file),
    ("a file of signatures", signature_part),
    ("the decisions", of_run(DATABASE)),
    ("the copy of the decisions", of_run(COPY)),
    ("CURRENT", of_run("CURRENT")),
):
    fault(f"a bit of {_name} is flipped", damaged, _find, "a bit")

CURRENTS: dict[str, bytes] = {
    "empty": b"",
    "not text": b"\xff\xfe\x00\x01",
    "not JSON": b"gen-0001\n",
    "a list": b"[1, 2]",
    "without keys": b"{}",
    "with numbers": b'{"schema": 2, "generation": 1, "findings": 2}',
    "naming what is not there": b'{"schema": 2, "generation": "gen-0999", "findings": "f.duckdb"}',
    "naming a place outside": b'{"schema": 2, "generation": "../..", "findings": "x"}',
    "deeply nested": b"[" * 100_000,
}


def current_is(scene: Scene, content: bytes | None) -> bool:
    """Put something else into CURRENT, or nothing in its place."""
    (scene.run / "CURRENT").unlink()
    if content is not None:
        (scene.run / "CURRENT").write_bytes(content)
    scene.audit("report", scene.run)
    return True


def current_folder(scene: Scene) -> bool:
    (scene.run / "CURRENT").unlink()
    (scene.run / "CURRENT").mkdir()
    scene.audit("report", scene.run)
    return True


def special(scene: Scene, find: Callable[[Scene], Path]) -> bool:
    """Put a pipe, which waits for whoever writes to it, in the place of a file of the run."""
    path = find(scene)
    path.unlink()
    os.mkfifo(path)
    scene.audit("report", scene.run)
    scene.audit("verify", scene.run)
    return True


def generation_removed(scene: Scene) -> bool:
    shutil.rmtree(generation(scene))
    scene.audit("report", scene.run)
    return True


def building_is(scene: Scene, name: str, content: bytes) -> bool:
    """Leave something in the folder where a generation is built, or in its place."""
    path = scene.run / "building" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return True


for _name, _content in CURRENTS.items():
    fault(f"CURRENT is {_name}", current_is, _content)
for _name, _find in (
    ("CURRENT", of_run("CURRENT")),
    ("measurements.duckdb", measurements_file),
    ("the findings file", findings_file),
    ("a file of signatures", signature_part),
):
    fault(f"{_name} is a pipe", special, _find)
fault("CURRENT is removed", current_is, None)
fault("CURRENT is a folder", current_folder)
fault("the folder of the generation is removed", generation_removed)
_NEW, _NOISE = "measurements.duckdb", random.Random(1).randbytes(9000)
_FOREIGN = "a foreign file lies where a generation is built"
fault("an unfinished generation of 0 bytes was left", building_is, _NEW, b"")
fault("an unfinished generation of random bytes was left", building_is, _NEW, _NOISE)
fault(_FOREIGN, building_is, "findings-0001.duckdb", b"x")
fault("a file lies where the folder of the next generation belongs", building_is, "", b"x")


# ---- two at once ----


def two_at_once(scene: Scene, first: str, second: str) -> bool:
    """Start two writers of one run at nearly the same time."""
    one = scene.begin(first)
    time.sleep(scene.random.uniform(0.0, 2.0))
    alive = one.poll() is None
    two = scene.begin(second)
    scene.end(two)
    scene.end(one)
    return alive


def readers(scene: Scene) -> bool:
    process, rounds = scene.begin(), 0
    while process.poll() is None:
        scene.audit("sql", scene.run, "SELECT count(*) FROM images")
        scene.audit("report", scene.run, "--json")
        rounds += 1
    scene.end(process)
    return rounds > 0


for _pair in (("scan", "scan"), ("scan", "recheck"), ("recheck", "recheck")):
    fault(f"`audit {_pair[0]}` and `audit {_pair[1]}` at once", two_at_once, *_pair)
fault("reports, SQL and exports run while a scan publishes", readers)


# ---- the dataset changes under the scan ----


Change = Callable[[Path, random.Random], object]


def changing(scene: Scene, change: Change) -> bool:
    """Change a third of the files while a scan runs, then put them back."""
    kept = shutil.copytree(scene.data, scene.folder / "kept", copy_function=shutil.copy2)
    process = scene.begin()
    time.sleep(scene.random.uniform(0.2, 2.0))
    alive = process.poll() is None
    files = sorted(p for p in scene.data.rglob("*") if p.is_file())
    for path in scene.random.sample(files, len(files) // 3):
        change(path, scene.random)
    scene.end(process)
    shutil.rmtree(scene.data)
    shutil.copytree(kept, scene.data, copy_function=shutil.copy2)
    return alive


def replaced(make: Callable[[Path], object]) -> Change:
    """Return a change that makes something else of a file's name."""

    def change(path: Path, _: random.Random) -> None:
        path.unlink()
        make(path)

    return change


def move_folder(path: Path, _: random.Random) -> None:
    """Rename the folder of a file, once."""
    if path.parent.exists():
        path.parent.rename(path.parent.with_name(path.parent.name + "-moved"))


CHANGES: dict[str, Change] = {
    "remove files": lambda path, _: path.unlink(),
    "cut files": lambda path, rng: os.truncate(path, rng.randrange(path.stat().st_size)),
    "empty files": lambda path, _: path.write_bytes(b""),
    "replace by folders": replaced(Path.mkdir),
    "replace by pipes": replaced(os.mkfifo),
    "replace by loops": replaced(lambda path: path.symlink_to(path.name)),
    "move folders": move_folder,
}
for _what, _change in CHANGES.items():
    fault(f"a third of the dataset during a scan: {_what}", changing, _change)


# ---- running them ----


Decisions = list[tuple[object, ...]]
Stage = tuple[Path, Index, Decisions, dict[str, tuple[int, int]]]
"""What every scene is a copy of: the folder with the dataset and a run that is out of date; the
undisturbed index and decisions, and `files_of` the dataset."""


def prepare(folder: Path) -> Stage:
    """Make a dataset, a run of most of it with decisions, and the index of an undisturbed scan."""
    data = folder / "data"
    for name in ("val", "annotations"):
        shutil.copytree(ROOT / "sample_data" / name, data / name, copy_function=shutil.copy2)
    files = sorted(p for p in data.rglob("*") if p.is_file())
    scene = Scene(folder, data, folder / "run", random.Random(0))
    aside = folder / "aside"
    aside.mkdir()
    moved = {path: path.rename(aside / f"{n}") for n, path in enumerate(files[::6])}
    assert scene.scan().code == 0, scene.commands[-1].said
    for path in files[1:6]:
        name = path.relative_to(data).as_posix()
        done = scene.audit("decide", scene.run, name, "--as", "keep")
        assert done.code == 0, done.said
    for path, hidden in moved.items():
        hidden.rename(path)
    shutil.copytree(scene.run, folder / "whole")
    scene.run = folder / "whole"
    assert scene.scan().code == 0
    return folder, index(folder / "whole"), decided(folder / "run"), files_of(data)


def files_of(data: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of each file of a dataset."""
    found = ((p, p.stat()) for p in data.rglob("*") if p.is_file())
    return {str(p): (status.st_size, status.st_mtime_ns) for p, status in found}


def decided(run: Path) -> Decisions:
    return [(d.id, d.subject, d.verb.value) for d in DecisionStore(run).log()]


def index(run: Path) -> Index:
    """Return every row of every table of a run, without what tells how they came about."""
    with open_run(run) as store:
        columns = store.rows(
            "SELECT table_name, list(column_name ORDER BY column_index) AS columns "
            "FROM duckdb_columns() JOIN "
            "(SELECT table_oid FROM duckdb_tables()) USING (table_oid) "
            "WHERE NOT internal AND NOT list_contains(?, table_name) GROUP BY ALL ORDER BY ALL",
            [list(WAYS)],
        )
        found = {}
        for row in columns:
            kept = ", ".join(f'"{name}"' for name in row["columns"] if name not in HOW)
            table = row["table_name"]
            found[table] = store.query(f"SELECT {kept} FROM {table} ORDER BY ALL")
        return found


def restore_start(scene: Scene) -> None:
    shutil.rmtree(scene.run, ignore_errors=True)
    shutil.copytree(scene.folder.parent / "run", scene.run)


@dataclass
class Tally:
    """What the repetitions of one fault did."""

    happened: int = 0
    survived: int = 0
    lost: int = 0
    twice: int = 0
    complaints: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)


def repeat(stage: Stage, name: str, repeats: int, seed: int) -> Tally | str:
    """Let one fault strike until it happened `repeats` times, or thrice as often in vain."""
    tally = Tally()
    for number in range(3 * repeats):
        if tally.happened == repeats:
            break
        folder = stage[0] / "scene"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # the path of the dataset is part of the index, so all scenes share one place
        rng = random.Random(f"{seed} {name} {number}")
        scene = Scene(folder, stage[0] / "data", folder / "run", rng)
        restore_start(scene)
        try:
            happened = FAULTS[name](scene)
        except NotPossibleError as why:
            return f"left out: {why}"
        if happened:
            tally.happened += 1
            judge(stage, scene, tally)
    return tally


SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # by the faults themselves


def judge(stage: Stage, scene: Scene, tally: Tally) -> None:
    """Scan once more without a fault, and compare."""
    struck, before = len(scene.commands), tally.complaints.total()
    last = scene.audit("scan", scene.data, "--out", scene.run, "--fail-on", "never")
    tally.codes.update(done.code for done in scene.commands[:struck])
    for done in scene.commands:
        if "Traceback (most recent" in done.said:
            tally.complaints["traceback: " + done.said.strip().splitlines()[-1][:100]] += 1
        if "this program failed" in done.said:
            tally.complaints[done.said[done.said.index("this program failed") :][:120]] += 1
        if done.code < 0 and -done.code not in SENT:
            tally.complaints[f"died of signal {-done.code}"] += 1
    if last.code != 0:
        tally.complaints["the next scan: " + last.said.strip().splitlines()[-1][:140]] += 1
        return
    found, (_, whole, decisions, files) = index(scene.run), stage
    if files_of(scene.data) != files:
        tally.complaints["the dataset has changed"] += 1
    for table, frame in whole.items():
        missing = frame.join(found[table], on=frame.columns, how="anti", nulls_equal=True)
        tally.lost += missing.height
        more = found[table].join(frame, on=frame.columns, how="anti", nulls_equal=True)
        if missing.height or more.height:
            tally.complaints[f"{table}: {missing.height} rows lost, {more.height} others"] += 1
    differ, twice = differences(whole, found)
    tally.twice += twice
    kept = decided(scene.run)
    if kept != decisions:
        tally.complaints[f"{len(kept)} of {len(decisions)} decisions"] += 1
    tally.survived += not differ and kept == decisions and tally.complaints.total() == before


def differences(whole: Index, found: Index) -> tuple[list[str], int]:
    """Return the tables that are not as in an undisturbed index, and how many rows are twice."""
    differ = [name for name, frame in whole.items() if not frame.equals(found.get(name, EMPTY))]
    return differ, sum(frame.height - frame.unique().height for frame in found.values())


Struck = tuple[str, list[object], bool, list[str]]
"""A fault's words, the other columns of its row, whether it was survived, lines about it."""


def conclude(struck: Iterable[Struck]) -> tuple[Document, bool]:
    """Print a row for each fault that strikes; return what is printed last."""
    faults, bad = 0, []
    for words, columns, survived, said in struck:
        faults += 1
        row = f"| {words} | {' | '.join(map(str, columns))} |"
        print(row, *(f"    {line}" for line in said), sep="\n", flush=True)
        bad += [] if survived else [words]
    return {"faults": faults, "survived": faults - len(bad), "bad": bad}, not bad


def with_share(ended: tuple[Document, bool], totals: Counter[str]) -> tuple[Document, bool]:
    """Add to what `conclude` returns how many tries there were, and the share that failed."""
    document, held = ended
    share = round(totals["failed"] / max(1, totals["tries"]), 4)
    return {**document, **totals, "share_failed": share}, held


@measures(app)
def strike(
    repeats: int = 3, only: str = "", shard: str = "0/1", seed: int = 1
) -> tuple[Document, bool]:
    """Let every fault happen so often; ends with 1 where one was not survived."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    totals = Counter(tries=0, failed=0, rows_lost=0, rows_twice=0)

    def struck(stage: Stage) -> Iterator[Struck]:
        for words in shard_of([words for words in FAULTS if only in words], shard):
            tally = repeat(stage, words, repeats, seed)
            if isinstance(tally, str):
                yield words, [tally, "", "", "", ""], True, []
                continue
            counts = [tally.happened, tally.survived, tally.lost, tally.twice]
            said = [f"{count} x {complaint}" for complaint, count in tally.complaints.items()]
            held = 0 < tally.happened == tally.survived and not said
            totals.update(tries=counts[0], failed=counts[0] - counts[1])
            totals.update(rows_lost=tally.lost, rows_twice=tally.twice)
            yield words, [*counts, ", ".join(map(str, sorted(tally.codes)))], held, said

    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        return with_share(conclude(struck(prepare(Path(name)))), totals)


# ---- killed at random moments ----


Listing = dict[str, bytes]


def listing(folder: Path) -> Listing:
    """Return the files of a folder as a scan would take them: without hidden names."""
    found = (p for p in folder.rglob("*") if p.is_file())
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in found if not any(part.startswith(".") for part in p.relative_to(folder).parts)
    }  # fmt: skip


def kill_at_moment(scene: Scene, duration: float, *words: object) -> bool:
    """Start a command and kill it at a random moment; returns whether it was still at work."""
    process = scene.start(*words)
    time.sleep(scene.random.uniform(0.25, 1.0) * duration)
    alive = process.poll() is None
    process.kill()
    scene.end(process)
    return alive


def run_after_kill(scene: Scene, duration: float, words: Sequence[object], whole: Index) -> str:
    """Kill a writer of a run; returns what is wrong afterwards, "" where nothing is."""
    if not kill_at_moment(scene, duration, *words):
        return "too late"
    said = scene.audit("report", scene.run, "--json").said
    if not ('"schema"' in said or "no finished scan yet" in said or "There is no run" in said):
        return f"the run does not open: {said.strip()[-140:]}"
    if "Traceback" in said:
        return "traceback"
    scene.audit("scan", scene.data, "--out", scene.run, "--fail-on", "never")
    if scene.commands[-1].code:
        return f"the next scan: {scene.commands[-1].said.strip()[-140:]}"
    differ, twice = differences(whole, index(scene.run))
    return f"{differ} differ" if differ or twice else ""


def folder_after_kill(
    scene: Scene, duration: float, words: Sequence[object], target: Path, whole: Listing
) -> str:
    """Kill `audit apply`; returns what is wrong afterwards, "" where nothing is."""
    if not kill_at_moment(scene, duration, *words):
        return "too late"
    found = listing(target) if target.exists() else {}
    half = bool(found) and found != whole
    done = scene.audit(*words)
    if done.code:
        return f"the next apply: {done.said.strip()[-140:]}"
    if listing(target) != whole:
        return "the next apply makes another tree"
    return f"{len(found)} of {len(whole)} files, without a sign" if half else ""


@measures(app)
def kills(
    repeats: int = 30, only: str = "", seed: int = 1, copies: int = 6
) -> tuple[Document, bool]:
    """Kill `audit scan`, `recheck` and `apply` with signal 9 at random moments, then go on.

    After each kill the run opens or has no finished scan yet, and a scan ends with the rows of an
    undisturbed one; the folder of an apply is empty or whole, and a second apply ends with the
    files of an undisturbed one. Of the scans, every second is a first one; of the applies, every
    second writes into an empty folder that exists. `copies`: of the dataset that is applied.
    """
    totals: Document = {}
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        stage = prepare(Path(name))
        folder, data, target = stage[0], stage[0] / "data", stage[0] / "scene" / "new"
        large = folder / "large"
        for number in range(copies):
            shutil.copytree(data / "val", large / f"copy{number}" / "val")
        maker = Scene(folder, large, folder / "plans", random.Random(0))
        maker.scan()
        plan, whole_folder = folder / "plan.json", folder / "applied"
        maker.audit("export", maker.run, "--plan", plan)
        scan = ("scan", data, "--out", folder / "scene" / "run", "--fail-on", "never")
        apply = ("apply", plan, "--to", target)
        recheck = ("recheck", folder / "scene" / "run", "--fail-on", "never")
        begun = time.perf_counter()
        maker.end(maker.start("apply", plan, "--to", whole_folder))
        seconds = {"apply": time.perf_counter() - begun}
        tree = listing(whole_folder)
        for verb, words in (("scan", scan), ("recheck", recheck), ("apply", apply)):
            if only not in verb:
                continue
            tally = Counter[str]()
            for number in range(4 * repeats):
                if tally["killed"] == repeats:
                    break
                shutil.rmtree(folder / "scene", ignore_errors=True)
                (folder / "scene").mkdir()
                rng = random.Random(f"{seed} {verb} {number}")
                scene = Scene(folder / "scene", data, folder / "scene" / "run", rng)
                fresh = number % 2
                if verb == "apply":
                    if fresh:
                        target.mkdir()
                    wrong = folder_after_kill(scene, seconds[verb], words, target, tree)
                else:
                    if verb == "recheck" or not fresh:
                        source = "whole" if verb == "recheck" else "run"
                        shutil.copytree(folder / source, scene.run)
                    if verb not in seconds:
                        begun = time.perf_counter()
                        scene.end(scene.start(*words))
                        seconds[verb] = time.perf_counter() - begun
                        continue
                    wrong = run_after_kill(scene, seconds[verb], words, stage[1])
                if wrong == "too late":
                    continue
                tally["killed"] += 1
                tally["wrong"] += bool(wrong)
                if wrong:
                    print(f"    {verb} {number}: {wrong}", flush=True)
            print(f"| `audit {verb}` | {tally['killed']} | {tally['wrong']} |", flush=True)
            totals[verb] = {"killed": tally["killed"], "wrong": tally["wrong"],
                            "undisturbed_s": round(seconds[verb], 2)}  # fmt: skip
    return totals, not any(one["wrong"] for one in totals.values())


@measures(app)
def decisions(kills: int = 30, seed: int = 1) -> tuple[Document, bool]:
    """Kill `audit decide` at so many moments: is a reported decision lost, or one there twice?

    Every second kill strikes soon after the journal of a transaction appears.
    """
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        run = Path(name) / "run"
        scene = Scene(Path(name), ROOT / "sample_data", run, random.Random(seed))
        assert scene.scan().code == 0, scene.commands[-1].said
        words, reported, seconds, in_writing = (
            ("--where", "true", "--as", "keep", "--yes"),
            [],
            0.0,
            0,
        )
        for number in range(kills + 1):  # the first is not killed
            began, process = time.monotonic(), scene.start("decide", run, *words, "--note", number)
            if number % 2:
                while process.poll() is None and not (run / f"{DATABASE}-journal").exists():
                    pass
                in_writing += process.poll() is None
                time.sleep(scene.random.uniform(0, 0.02))
            elif number:
                time.sleep(scene.random.uniform(0, seconds))
            if number:
                process.send_signal(signal.SIGKILL)
            reported += [str(number)] * ("Recorded" in scene.end(process).said)
            seconds = seconds or time.monotonic() - began
        log = json.loads(scene.audit("decide", run, "--log", "-n", 10**9, "--json").said)
        rows = Counter(row["note"] for row in log)
        subjects = Counter((row["note"], row["subject"]) for row in log)
        facts = {
            "kills": kills, "in_writing": in_writing, "reported": len(reported),
            "recorded": len(rows), "lost": sum(note not in rows for note in reported),
            "in_part": sum(n != rows["0"] for n in rows.values()),
            "twice": sum(n > 1 for n in subjects.values()),
            "verify": scene.audit("verify", run).code,
        }  # fmt: skip
    return facts, not any(facts[bad] for bad in ("lost", "in_part", "twice", "verify"))


if __name__ == "__main__":
    app()
