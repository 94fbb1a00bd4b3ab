"""Break things on purpose, and count what is lost.

    python benchmarks/faults.py [--repeats 3] [--only WORD] [--part 1/2] [--seed 1] [--docs F.md]

Every fault strikes a real `audit` command on a small dataset: processes are killed, disks fill up,
files of the run are damaged, two writers meet, the dataset changes under a scan. Each is repeated
at random points, and proves that it happened: a kill that came after the end does not count. Then
the same scan runs again without a fault. Survived means that its index, findings and decisions
equal those of an undisturbed run row for row, and that no command on the way ended with a
traceback. Where a fault needs root (a small disk of its own), it is left out without it. About 20 s
a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from faulty_scan import EVENTS

from audit.review.ledger import LEDGER, Ledger
from audit.run.generations import open_run

ROOT = Path(__file__).parent.parent
HOW = ("mtime_ns", "ctime_ns", "file_key", "seconds", "memory_growth", "completeness")
"""Columns that tell when, at what cost or by which way something was found; no others differ."""
WAYS = ("meta", "relate_facts", "rechecks")
"""Tables that do: a later scan takes pairs over, and keeps what was looked at in full size."""
Index = dict[str, pl.DataFrame]


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

    def command(self, *words: str | Path) -> list[str]:
        """Return the command line of `audit` with these words."""
        return [sys.executable, "-P", "-m", "audit", *map(str, words)]

    def audit(self, *words: str | Path, prefix: str = "", **options: object) -> Done:
        """Run an `audit` command to its end; `prefix` is shell before it, such as a ulimit."""
        line = self.command(*words)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}  # type: ignore[dict-item]
        if prefix:
            line = ["bash", "-c", f'{prefix} exec "$@"', "bash", *line]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        process = subprocess.run(  # type: ignore[call-overload]
            line, text=True, errors="replace", check=False, env=environment, timeout=600, **options
        )
        return self.note(process.returncode, process.stdout or "")

    def scan(self, *words: str, **options: object) -> Done:
        """Scan the dataset into the run."""
        return self.audit(
            "scan", self.data, "--out", self.run, "--fail-on", "never", *words, **options
        )

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start an `audit` command, to be disturbed."""
        return subprocess.Popen(
            self.command(*words),
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def start_scan(self) -> subprocess.Popen[str]:
        """Start a scan of the dataset into the run."""
        return self.start("scan", self.data, "--out", self.run, "--fail-on", "never")

    def end(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a command that was started."""
        said, _ = process.communicate(timeout=600)
        return self.note(process.returncode, said or "")

    def note(self, code: int, said: str) -> Done:
        """Keep how a command ended."""
        done = Done(code, said)
        self.commands.append(done)
        return done

    def faulty(self, verb: str, kind: str, at: int) -> Done:
        """Run a scan or recheck that kills itself at its `at`-th event of a kind."""
        words = [verb, str(self.data), str(self.run), kind, str(at)]
        process = subprocess.run(
            [sys.executable, "-P", str(ROOT / "benchmarks" / "faulty_scan.py"), *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        return self.note(process.returncode, process.stdout + process.stderr)


Strike = Callable[[Scene], bool]
FAULTS: dict[str, tuple[str, Strike]] = {}


def fault(name: str, words: str) -> Callable[[Strike], Strike]:
    """Register a fault: it strikes a scene and returns whether it really happened."""

    def register(strike: Strike) -> Strike:
        FAULTS[name] = words, strike
        return strike

    return register


# ---- killed ----


def kill_at_event(verb: str, kind: str) -> Strike:
    """Kill a scan or recheck at one of its events, at random."""

    counted: list[int] = []  # how many there are, which does not change

    def strike(scene: Scene) -> bool:
        if not counted:
            counted.append(int(scene.faulty(verb, f"count-{kind}", 0).said.split()[-1]))
            restore_start(scene)
        done = scene.faulty(verb, kind, scene.random.randrange(counted[0]))
        return done.code == -signal.SIGKILL

    return strike


for _verb in ("scan", "recheck"):
    for _kind in EVENTS:
        if _verb == "scan" or _kind in ("sync", "statement", "rename"):
            fault(f"{_verb} killed at {_kind}", f"`audit {_verb}` is killed at a random {_kind}")(
                kill_at_event(_verb, _kind)
            )


def signal_during(verb: str, number: signal.Signals) -> Strike:
    """Send a signal at a random moment of a command."""

    def strike(scene: Scene) -> bool:
        words = (verb, scene.data, "--out", scene.run) if verb == "scan" else (verb, scene.run)
        process = scene.start(*words, "--fail-on", "never")
        time.sleep(scene.random.uniform(0.3, 3.0))
        alive = process.poll() is None
        process.send_signal(number)
        scene.end(process)
        return alive

    return strike


for _number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    fault(f"scan gets {_number.name}", f"`audit scan` gets {_number.name} at a random moment")(
        signal_during("scan", _number)
    )
fault("recheck gets SIGINT", "`audit recheck` gets SIGINT at a random moment")(
    signal_during("recheck", signal.SIGINT)
)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the worker processes of a command."""
    out = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "audit.picture.worker"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(line) for line in out.stdout.split()]


def hit_workers(number: signal.Signals, *, every: bool, delay: tuple[float, float]) -> Strike:
    """Send a signal to one or all workers of a scan some time after the first is seen."""

    def strike(scene: Scene) -> bool:
        process, hit = scene.start_scan(), 0
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

    return strike


fault("worker killed", "a worker is killed as by the system's memory killer")(
    hit_workers(signal.SIGKILL, every=False, delay=(0.2, 1.5))
)
fault("every worker killed", "all workers are killed at once")(
    hit_workers(signal.SIGKILL, every=True, delay=(0.2, 1.5))
)
fault("worker killed at its start", "a worker is killed before it is ready")(
    hit_workers(signal.SIGKILL, every=True, delay=(0.0, 0.02))
)
fault("worker crashes", "a worker dies of SIGSEGV")(
    hit_workers(signal.SIGSEGV, every=False, delay=(0.2, 1.5))
)
fault("worker aborts", "a worker dies of SIGABRT")(
    hit_workers(signal.SIGABRT, every=False, delay=(0.2, 1.5))
)


@fault("scan suspended", "the scan is suspended for two seconds (SIGSTOP, SIGCONT)")
def suspend(scene: Scene) -> bool:
    process = scene.start_scan()
    time.sleep(scene.random.uniform(0.5, 2.0))
    alive = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.0)
        process.send_signal(signal.SIGCONT)
    scene.end(process)
    return alive


@fault("killed twice", "two scans in a row are killed")
def kill_twice(scene: Scene) -> bool:
    first, second = (signal_during("scan", signal.SIGKILL)(scene) for _ in range(2))
    return first and second


# ---- the machine ----


@contextlib.contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[Path]:
    """Mount a disk of this size there."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        raise NotPossibleError("needs root")
    options = f"size={size_kb}k"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if made.returncode:
        raise NotPossibleError("mounting is not allowed")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def disk_full(share: tuple[float, float], *, fresh: bool) -> Strike:
    """Scan into a disk that holds a random share of what a run takes, then make room."""

    def strike(scene: Scene) -> bool:
        size = sum(f.stat().st_size for f in scene.run.rglob("*") if f.is_file()) // 1024
        kept = scene.run
        disk = scene.folder / "disk"
        room = int(size * scene.random.uniform(*share)) + (0 if fresh else size)
        with small_disk(disk, max(room, 16)):
            scene.run = disk / "run"
            if not fresh:
                shutil.copytree(kept, scene.run)
            done = scene.scan()
            happened = done.code != 0 and ("full" in done.said or "space" in done.said.lower())
            shutil.copytree(scene.run, scene.folder / "saved", ignore_dangling_symlinks=True)
        if fresh:
            shutil.copy(kept / LEDGER, scene.folder / "saved" / LEDGER)
        shutil.rmtree(kept)
        scene.run = (scene.folder / "saved").rename(kept)
        return happened

    return strike


fault("disk full at the start", "no room for the first bytes of a new run")(
    disk_full((0.0, 0.05), fresh=True)
)
fault("disk full in a first scan", "the disk fills up at a random point of a first scan")(
    disk_full((0.1, 0.9), fresh=True)
)
fault("disk full in a later scan", "the disk fills up at a random point of a later scan")(
    disk_full((0.05, 0.7), fresh=False)
)


@fault("temporary folder full", "the folder for temporary files is full")
def temporary_full(scene: Scene) -> bool:
    with small_disk(scene.folder / "tmp", 16) as folder:
        (folder / "filler").write_bytes(bytes(16 << 10))
        done = scene.scan(env={"TMPDIR": str(folder)})
    return done.code in (0, 4)


@fault("no temporary folder", "the folder for temporary files does not exist")
def temporary_missing(scene: Scene) -> bool:
    return scene.scan(env={"TMPDIR": str(scene.folder / "none")}).code == 0


def under_limit(prefix: str) -> Strike:
    """Scan under a limit of the shell; whatever comes of it, the next scan must be whole."""

    def strike(scene: Scene) -> bool:
        scene.scan(prefix=prefix)
        return True

    return strike


for _files in (16, 24, 32, 48):
    fault(f"{_files} open files", f"at most {_files} files may be open (`ulimit -n {_files}`)")(
        under_limit(f"ulimit -n {_files};")
    )
for _mib in (300, 1000, 3000):
    fault(f"{_mib} MiB address space", f"`ulimit -v` of {_mib} MiB")(
        under_limit(f"ulimit -v {_mib * 1024};")
    )
fault("largest file 100 kB", "no file may grow beyond 100 kB (`ulimit -f`)")(
    under_limit("ulimit -f 100;")
)
fault("closed streams", "stdin, stdout and stderr are closed")(under_limit("exec <&- >&- 2>&-;"))
fault("stdout full", "stdout is a full device")(under_limit("exec >/dev/full;"))


@fault("run not writable", "the run's folder is on a read-only disk")
def read_only_run(scene: Scene) -> bool:
    with small_disk(scene.folder / "ro", 65536) as disk:
        shutil.copytree(scene.run, disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        kept, scene.run = scene.run, disk / "run"
        codes = [scene.scan().code, scene.audit("recheck", scene.run).code]
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        scene.run = kept
    return codes == [2, 2]


@fault("working folder deleted", "the folder where the user stands is deleted")
def deleted_folder(scene: Scene) -> bool:
    gone = scene.folder / "gone"
    gone.mkdir()
    line = scene.command("scan", scene.data, "--out", scene.run, "--fail-on", "never")
    shell = f'cd {gone} && rmdir {gone} && exec "$@"'
    done = subprocess.run(
        ["bash", "-c", shell, "bash", *line],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    scene.note(done.returncode, done.stdout + done.stderr)
    return True


# ---- what lies on the disk is damaged ----


def generation(scene: Scene) -> Path:
    """Return the current generation's folder."""
    return scene.run / json.loads((scene.run / "CURRENT").read_text())["generation"]


def overwrite(path: Path, rng: random.Random, how: str) -> bool:
    """Damage a file; returns whether its bytes are others now."""
    before = path.read_bytes()
    size = len(before)
    if how == "removed":
        path.unlink()
        return True
    if how == "emptied":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(before[: rng.randrange(1, max(size, 2))])
    elif how == "header":
        path.write_bytes(rng.randbytes(min(size, 4096)) + before[4096:])
    elif how == "middle":
        start = rng.randrange(size // 4, max(size // 2, size // 4 + 1))
        path.write_bytes(
            before[:start] + rng.randbytes(min(4096, size - start)) + before[start + 4096 :]
        )
    elif how == "flipped":
        place = rng.randrange(size)
        changed = bytes([before[place] ^ (1 << rng.randrange(8))])
        path.write_bytes(before[:place] + changed + before[place + 1 :])
    return path.read_bytes() != before


def damaged(find: Callable[[Scene], Path], how: str) -> Strike:
    """Damage a file of the run, ask for a report, then repair."""

    def strike(scene: Scene) -> bool:
        happened = overwrite(find(scene), scene.random, how)
        scene.audit("report", scene.run)
        scene.audit("verify", scene.run)
        scene.audit("verify", scene.run, "--repair")
        return happened

    return strike


def findings_file(scene: Scene) -> Path:
    return generation(scene) / json.loads((scene.run / "CURRENT").read_text())["findings"]


def signature_part(scene: Scene) -> Path:
    parts = [p for p in scene.run.rglob("*") if p.is_file() and "signature" in str(p)]
    return scene.random.choice(sorted(parts))


for _how in ("removed", "emptied", "truncated", "header", "middle"):
    fault(f"measurements {_how}", f"measurements.duckdb: {_how}")(
        damaged(lambda scene: generation(scene) / "measurements.duckdb", _how)
    )
for _how in ("removed", "emptied", "truncated", "header"):
    fault(f"findings {_how}", f"the findings file: {_how}")(damaged(findings_file, _how))
for _how in ("removed", "emptied", "truncated", "middle"):
    fault(f"signatures {_how}", f"a file of signatures: {_how}")(damaged(signature_part, _how))

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


def current_is(content: bytes) -> Strike:
    """Put something else into CURRENT."""

    def strike(scene: Scene) -> bool:
        (scene.run / "CURRENT").write_bytes(content)
        scene.audit("report", scene.run)
        return True

    return strike


for _name, _content in CURRENTS.items():
    fault(f"CURRENT {_name}", f"CURRENT is {_name}")(current_is(_content))


@fault("CURRENT removed", "CURRENT is removed")
def current_removed(scene: Scene) -> bool:
    (scene.run / "CURRENT").unlink()
    scene.audit("report", scene.run)
    return True


@fault("CURRENT a folder", "CURRENT is a folder")
def current_folder(scene: Scene) -> bool:
    (scene.run / "CURRENT").unlink()
    (scene.run / "CURRENT").mkdir()
    scene.audit("report", scene.run)
    return True


@fault("generation removed", "the folder of the generation is removed")
def generation_removed(scene: Scene) -> bool:
    shutil.rmtree(generation(scene))
    scene.audit("report", scene.run)
    return True


def building_is(name: str, content: bytes) -> Strike:
    """Leave something in the folder where a generation is built."""

    def strike(scene: Scene) -> bool:
        (scene.run / "building").mkdir()
        (scene.run / "building" / name).write_bytes(content)
        return True

    return strike


fault("building emptied", "an unfinished generation of 0 bytes was left")(
    building_is("measurements.duckdb", b"")
)
fault("building of noise", "an unfinished generation of random bytes was left")(
    building_is("measurements.duckdb", random.Random(1).randbytes(9000))
)
fault("building with other files", "a foreign file lies where a generation is built")(
    building_is("findings-0001.duckdb", b"x")
)


@fault("building a file", "a file lies where the folder of the next generation belongs")
def building_file(scene: Scene) -> bool:
    (scene.run / "building").write_bytes(b"x")
    return True


# ---- two at once ----


def two_at_once(first: str, second: str) -> Strike:
    """Start two writers of one run at nearly the same time."""

    def strike(scene: Scene) -> bool:
        words = {
            "scan": ("scan", scene.data, "--out", scene.run),
            "recheck": ("recheck", scene.run),
        }
        one = scene.start(*words[first], "--fail-on", "never")
        time.sleep(scene.random.uniform(0.0, 2.0))
        alive = one.poll() is None
        two = scene.start(*words[second], "--fail-on", "never")
        scene.end(two)
        scene.end(one)
        return alive

    return strike


for _pair in (("scan", "scan"), ("scan", "recheck"), ("recheck", "recheck")):
    fault(f"{_pair[0]} and {_pair[1]}", f"`audit {_pair[0]}` and `audit {_pair[1]}` at once")(
        two_at_once(*_pair)
    )


@fault("readers during a scan", "reports, SQL and exports run while a scan publishes")
def readers(scene: Scene) -> bool:
    process, rounds = scene.start_scan(), 0
    while process.poll() is None:
        scene.audit("sql", scene.run, "SELECT count(*) FROM images")
        scene.audit("report", scene.run, "--json")
        rounds += 1
    scene.end(process)
    return rounds > 0


# ---- the dataset changes under the scan ----


def changing(change: Callable[[list[Path], random.Random], None]) -> Strike:
    """Change files of the dataset while a scan runs, then put them back."""

    def strike(scene: Scene) -> bool:
        kept = shutil.copytree(scene.data, scene.folder / "kept", copy_function=shutil.copy2)
        process = scene.start_scan()
        time.sleep(scene.random.uniform(0.2, 2.0))
        alive = process.poll() is None
        files = sorted(p for p in scene.data.rglob("*") if p.is_file())
        change(scene.random.sample(files, len(files) // 3), scene.random)
        scene.end(process)
        shutil.rmtree(scene.data)
        shutil.copytree(kept, scene.data, copy_function=shutil.copy2)
        return alive

    return strike


def remove_files(files: list[Path], _: random.Random) -> None:
    for path in files:
        path.unlink()


def cut_files(files: list[Path], rng: random.Random) -> None:
    for path in files:
        os.truncate(path, rng.randrange(path.stat().st_size))


def empty_files(files: list[Path], _: random.Random) -> None:
    for path in files:
        path.write_bytes(b"")


def replace_by_folders(files: list[Path], _: random.Random) -> None:
    for path in files:
        path.unlink()
        path.mkdir()


def replace_by_pipes(files: list[Path], _: random.Random) -> None:
    for path in files:
        path.unlink()
        os.mkfifo(path)


def replace_by_loops(files: list[Path], _: random.Random) -> None:
    for path in files:
        path.unlink()
        path.symlink_to(path.name)


def move_folders(files: list[Path], _: random.Random) -> None:
    for folder in {path.parent for path in files}:
        folder.rename(folder.with_name(folder.name + "-moved"))


for _change in (
    remove_files, cut_files, empty_files, replace_by_folders, replace_by_pipes, replace_by_loops,
    move_folders,
):  # fmt: skip
    _what = _change.__name__.replace("_", " ")
    fault(f"dataset: {_what}", f"a third of the dataset during a scan: {_what}")(changing(_change))


# ---- running them ----


@dataclass(frozen=True)
class Stage:
    """What every scene is a copy of: dataset, a run that is out of date, the undisturbed index."""

    folder: Path
    whole: Index
    decisions: list[tuple[object, ...]]


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
        assert scene.audit("decide", scene.run, name, "--as", "keep").code == 0, scene.commands[
            -1
        ].said
    for path, hidden in moved.items():
        hidden.rename(path)
    shutil.copytree(scene.run, folder / "whole")
    scene.run = folder / "whole"
    assert scene.scan().code == 0
    decisions = [(d.id, d.subject, d.verb.value) for d in Ledger(folder / "run").log()]
    return Stage(folder, index(folder / "whole"), decisions)


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
    """Put the run back as it was before anything struck."""
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
        folder = stage.folder / "scene"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # the path of the dataset is part of the index, so all scenes share one place
        scene = Scene(
            folder, stage.folder / "data", folder / "run", random.Random(f"{seed} {name} {number}")
        )
        restore_start(scene)
        try:
            happened = FAULTS[name][1](scene)
        except NotPossibleError as why:
            return f"left out: {why}"
        if happened:
            tally.happened += 1
            judge(stage, scene, tally)
    return tally


SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # by the faults themselves


def judge(stage: Stage, scene: Scene, tally: Tally) -> None:
    """Scan once more without a fault, and compare."""
    struck = len(scene.commands)
    last = scene.scan()
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
    found = index(scene.run)
    for table, frame in stage.whole.items():
        missing = frame.join(found[table], on=frame.columns, how="anti", nulls_equal=True)
        tally.lost += missing.height
        tally.twice += found[table].height - found[table].unique().height
        more = found[table].join(frame, on=frame.columns, how="anti", nulls_equal=True)
        if missing.height or more.height:
            tally.complaints[f"{table}: {missing.height} rows lost, {more.height} others"] += 1
    decisions = [(d.id, d.subject, d.verb.value) for d in Ledger(scene.run).log()]
    if decisions != stage.decisions:
        tally.complaints[f"{len(decisions)} of {len(stage.decisions)} decisions"] += 1
    same = all(frame.equals(found[table]) for table, frame in stage.whole.items())
    tally.survived += same and decisions == stage.decisions


def table_row(name: str, tally: Tally | str) -> str:
    """Return a line of the table."""
    words = FAULTS[name][0]
    if isinstance(tally, str):
        return f"| {words} | {tally} | | | | |"
    codes = ", ".join(f"{code}" for code in sorted(tally.codes))
    numbers = (tally.happened, tally.survived, tally.lost, tally.twice)
    return f"| {words} | {' | '.join(map(str, numbers))} | {codes} |"


HEAD = """# Faults

Written by `python benchmarks/faults.py --docs docs/faults.md`, which says how each is made.
Survived: the next scan without a fault gives the index, the findings and the decisions of an
undisturbed run, row for row, and no command ended with a traceback. Exit codes are those of the
struck commands.

| fault | happened | survived | rows lost | rows twice | exit codes |
|---|---:|---:|---:|---:|---|
"""


def write_section(path: Path, head: str, rows: list[str]) -> None:
    """Write a section, its title and the table's head in `head`, over the one of that title."""
    title = head[: head.index("\n", 1)]
    kept, _, rest = path.read_text().partition(title)
    _, mark, others = rest.partition("\n## ")
    path.write_text(kept + head + "\n".join(rows) + "\n" + mark + others)


def main() -> None:
    """Run the faults and print the table; ends with 1 where one was not survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="times that each fault must happen")
    parser.add_argument("--only", help="faults whose name contains this")
    parser.add_argument(
        "--part", default="1/1", help="K/N: every N-th of the faults, from the K-th"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docs", type=Path, help="write the table there")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    part, parts = map(int, options.part.split("/"))
    names = [name for name in FAULTS if not options.only or options.only in name]
    names = names[part - 1 :: parts]
    rows, bad, happened, survived = [], [], 0, 0
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        stage = prepare(Path(name))
        for fault_name in names:
            started = time.monotonic()
            tally = repeat(stage, fault_name, options.repeats, options.seed)
            rows.append(table_row(fault_name, tally))
            if not isinstance(tally, str):
                happened, survived = happened + tally.happened, survived + tally.survived
                if tally.complaints or tally.survived < tally.happened or not tally.happened:
                    bad.append(fault_name)
                    for complaint, count in tally.complaints.items():
                        print(f"    {count} x {complaint}")
            print(f"{rows[-1]}  {time.monotonic() - started:.0f} s", flush=True)
    if options.docs:
        _, mark, others = options.docs.read_text().partition("\n## ")  # of source_faults.py
        options.docs.write_text(HEAD + "\n".join(rows) + "\n" + mark + others)
    result = {"faults": len(names), "happened": happened, "survived": survived, "not_survived": bad}
    print(json.dumps(result))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
