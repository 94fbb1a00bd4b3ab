"""Lose nodes, workers, the head and the shared place of a Ray cluster, and count what is lost.

    python benchmarks/node_faults.py [--pictures 1500] [--only WORD] [--docs F.md]

Two real nodes on this machine (`ray start` twice). Each fault strikes one `audit scan --executor
ray --parts PLACE` when some parts are there; then, where that ended, the same command runs again.
Survived: no traceback, and the run equals one of this machine alone row for row. Measured: files
that were opened by all its scans together; more than there are were measured again. Full disks
are a file system in memory of 2 MB, which needs the right to mount one.

The last line is JSON; ends with 1 where a fault was not survived.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from faults import Index, index, write_section
from PIL import Image

PORT = 6407
PARTS_FIRST = 3  # what lies on the shared place when a fault strikes
ADDRESS = f"127.0.0.1:{PORT}"
ENVIRONMENT = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


class Cluster:
    """A head node and others, each a process group of its own."""

    def __init__(self, nodes: int = 2) -> None:
        """Start them."""
        self.groups: dict[str, subprocess.Popen[bytes]] = {}
        self.start("head", "--head", f"--port={PORT}", "--include-dashboard=false")
        for number in range(1, nodes):
            self.start("node" if number == 1 else f"node {number}", f"--address={ADDRESS}")

    def start(self, name: str, *words: str) -> None:
        """Start a node of one core, and wait until it has joined."""
        line = [sys.executable, "-m", "ray.scripts.scripts", "start", *words, "--num-cpus=1"]
        line += ["--object-store-memory=150000000", "--block"]
        self.groups[name] = subprocess.Popen(
            line, start_new_session=True, env=ENVIRONMENT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ask = "import ray, sys; ray.init(sys.argv[1], logging_level='error', log_to_driver=False)"
        ask += "; print(sum(n['Alive'] for n in ray.nodes()))"
        wanted = sum(group.poll() is None for group in self.groups.values())
        for _ in range(30):
            time.sleep(1)
            told = subprocess.run(
                [sys.executable, "-c", ask, ADDRESS], capture_output=True, text=True,
                env=ENVIRONMENT, check=False,
            )  # fmt: skip
            if told.stdout.strip() == str(wanted):
                return
        raise RuntimeError(f"the {name} of the cluster did not start: {told.stderr[-500:]}")

    def kill(self, name: str) -> None:
        """Kill a node with all its processes at once."""
        group = self.groups.pop(name)
        os.killpg(group.pid, signal.SIGKILL)
        group.wait()

    def stop(self) -> None:
        """Kill what is left."""
        for name in list(self.groups):
            self.kill(name)


@dataclass
class Scene:
    """A dataset, a cluster, a shared place and a run; what the scans said."""

    folder: Path
    cluster: Cluster
    whole: Index
    said: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    measured: int = 0
    run: str = "run"
    place: str = ""

    def __post_init__(self) -> None:
        """Choose a shared folder."""
        self.place = self.place or str(self.folder / "shared")

    def begin(self) -> subprocess.Popen[str]:
        """Begin a scan."""
        line = [sys.executable, "-m", "audit", "scan", str(self.folder.parent / "data")]
        line += ["--out", str(self.folder / self.run), "--fail-on", "never", "--json"]
        line += ["--executor", "ray", "--address", ADDRESS, "--parts", self.place]
        return subprocess.Popen(
            line, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def end(self, scan: subprocess.Popen[str]) -> bool:
        """Wait for a scan; return whether it published."""
        out, err = scan.communicate(timeout=400)
        self.codes.append(scan.returncode)
        self.said.append(err[-2000:])
        return scan.returncode == 0 and bool(out)

    def parts(self) -> list[Path]:
        """Return the rows on the shared place."""
        return sorted(Path(self.place).glob("parts-*/*.features.parquet"))

    def wait_for(self, scan: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
        """Wait until something is there, or the scan ends."""
        while scan.poll() is None and not ready():
            time.sleep(0.005)

    def wait_for_parts(self, scan: subprocess.Popen[str]) -> None:
        """Wait for the first parts."""
        self.wait_for(scan, lambda: len(self.parts()) >= PARTS_FIRST)


Strike = Callable[[Scene], None]
FAULTS: dict[str, Strike] = {}


def fault(words: str) -> Callable[[Strike], Strike]:
    """Register a fault: a function that runs the struck scan."""

    def register(strike: Strike) -> Strike:
        FAULTS[words] = strike
        return strike

    return register


def processes(word: str) -> Iterator[int]:
    """Yield the processes whose command line begins with a pattern."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if re.match(word, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()):
                yield int(entry.name)


@fault("nothing")
def nothing(scene: Scene) -> None:
    """Run undisturbed."""
    scene.end(scene.begin())


@fault("a node is killed")
def kill_node(scene: Scene) -> None:
    """Kill the second node while it measures."""
    scan = scene.begin()
    scene.wait_for_parts(scan)
    scene.cluster.kill("node")
    scene.end(scan)


@fault("a node is killed, and another joins")
def replace_node(scene: Scene) -> None:
    """Kill the second node and start one again."""
    scan = scene.begin()
    scene.wait_for_parts(scan)
    scene.cluster.kill("node")
    scene.cluster.start("node", f"--address={ADDRESS}")
    scene.end(scan)


@fault("a node is killed during the search for near-duplicates")
def kill_searching_node(scene: Scene) -> None:
    """Kill the second node once descriptors are there."""
    scan = scene.begin()
    scene.wait_for(scan, lambda: any(Path(scene.place).glob("parts-*/search/descriptors-*")))
    scene.cluster.kill("node")
    scene.end(scan)


@fault("the processes of Ray on all nodes that do chunks are killed")
def kill_ray_workers(scene: Scene) -> None:
    """Kill what Ray started for the tasks."""
    scan = scene.begin()
    scene.wait_for_parts(scan)
    for number in processes("ray::do_chunk"):
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    scene.end(scan)


@fault("the processes that open files are killed")
def kill_openers(scene: Scene) -> None:
    """Kill the processes in which nodes open files."""
    scan = scene.begin()
    scene.wait_for_parts(scan)
    for number in processes(".*-m audit.picture.worker"):
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    scene.end(scan)


@fault("the scan on the head is killed")
def kill_scan(scene: Scene) -> None:
    """Kill the command."""
    scan = scene.begin()
    scene.wait_for_parts(scan)
    scan.kill()
    scene.end(scan)


@fault("the scan on the head is killed, and its disk is lost")
def lose_head(scene: Scene) -> None:
    """Kill the command and remove its run."""
    kill_scan(scene)
    shutil.rmtree(scene.folder / scene.run, ignore_errors=True)


@fault("the scan on the head is killed during the search")
def kill_searching_scan(scene: Scene) -> None:
    """Kill the command once descriptors are there."""
    scan = scene.begin()
    scene.wait_for(scan, lambda: any(Path(scene.place).glob("parts-*/search/descriptors-*")))
    scan.kill()
    scene.end(scan)


@fault("the head node of the cluster is killed")
def kill_head(scene: Scene) -> None:
    """Kill the node that the cluster hangs on, and start a new cluster."""
    scan = scene.begin()
    scene.wait_for_parts(scan)
    scene.cluster.kill("head")
    scene.end(scan)
    scene.cluster.stop()
    scene.cluster.__init__()  # type: ignore[misc]


@fault("parts are damaged after a kill")
def damage_parts(scene: Scene) -> None:
    """Cut one part, flip a bit in another, empty a third."""
    kill_scan(scene)
    for path, change in zip(
        scene.parts(),
        (
            lambda d: d[: len(d) // 2],
            lambda d: d[:99] + bytes([d[99] ^ 4]) + d[100:],
            lambda d: b"",
        ),
        strict=False,
    ):
        path.write_bytes(change(path.read_bytes()))
    shutil.rmtree(scene.folder / scene.run, ignore_errors=True)


@fault("the shared place is removed while nodes write")
def remove_place(scene: Scene) -> None:
    """Remove the shared folder."""
    scan = scene.begin()
    scene.wait_for_parts(scan)
    shutil.rmtree(scene.place, ignore_errors=True)
    scene.end(scan)


def on_small_disk(scene: Scene, megabytes: float, room: int) -> None:
    """Scan with a shared place on a disk that is full, then give it room."""
    disk = scene.folder / "disk"
    disk.mkdir()
    size = f"size={int(megabytes * 1e6)}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    scene.place = str(disk / "shared")
    scene.end(scene.begin())
    larger = f"remount,size={room}m"
    subprocess.run(["mount", "-o", larger, str(disk)], check=True)


@fault("the disk of the shared place is full of parts")
def full_disk(scene: Scene) -> None:
    """Let it fill up while nodes measure."""
    on_small_disk(scene, 0.4, 64)


@fault("the disk of the shared place is full during the search")
def full_disk_later(scene: Scene) -> None:
    """Let it take the parts, but not the descriptors."""
    on_small_disk(scene, 3.4, 64)


def try_fault(words: str, data: Path, whole: Index, cluster: Cluster) -> dict[str, Any]:
    """Strike one scan, run it again until it published, and compare."""
    folder = data.parent / "scene"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    scene = Scene(folder, cluster, whole)
    try:
        FAULTS[words](scene)
        if scene.codes[-1] != 0:
            scene.end(scene.begin())
        found = index(folder / scene.run)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return {"survived": False, "codes": scene.codes, "said": [repr(error), *scene.said]}
    finally:
        subprocess.run(["umount", str(folder / "disk")], capture_output=True, check=False)
        if "node" not in cluster.groups:
            cluster.start("node", f"--address={ADDRESS}")
    differ = [n for n, f in whole.items() if n not in found or not f.equals(found[n])]
    twice = sum(frame.height - frame.unique().height for frame in found.values())
    traceback = any("Traceback" in text for text in scene.said)
    left = [str(path) for path in Path(scene.place).glob("parts-*")]
    return {
        "survived": not differ and not traceback and not left, "differ": differ, "twice": twice,
        "lost": max(0, whole["features"].height - found["features"].height),
        "codes": scene.codes, "said": scene.said, "left": left,
    }  # fmt: skip


def make_pictures(folder: Path, n: int, size: tuple[int, int] = (320, 240)) -> None:
    """Write small photographs of made-up hills, one in fifty twice."""
    rng = np.random.default_rng(0)
    for number in range(n):
        place = folder / ("train" if number % 5 else "test") / f"class{number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        if number % 50 or not number:
            rough = rng.integers(0, 256, (9, 12, 3), np.uint8)
            picture = Image.fromarray(rough).resize(size, Image.Resampling.BICUBIC)
        picture.save(place / f"{number:05}.jpg", quality=60 + number % 30)


HEAD = """
## Nodes

Written by `python benchmarks/node_faults.py --docs docs/faults.md`: {n:,} pictures, two nodes of a
Ray cluster on one machine, parts on a shared folder. Each fault strikes one scan; where that ends
by a sentence, the same command runs again. Survived: the run equals one of this machine alone row
for row, with no traceback and nothing left on the shared place.

| fault | rows lost | rows twice | exit codes | survived |
|---|---:|---:|---|---|
"""


def main() -> None:
    """Run the faults and print the table; ends with 1 where one was not survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pictures", type=int, default=1500)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--docs", type=Path, help="write the table there")
    options = parser.parse_args()
    rows, bad = [], []
    with tempfile.TemporaryDirectory(prefix="node-faults-") as work:
        data = Path(work) / "data"
        make_pictures(data, options.pictures)
        line = [sys.executable, "-m", "audit", "scan", str(data), "--out", f"{work}/alone"]
        subprocess.run([*line, "--fail-on", "never"], check=True, stdout=subprocess.DEVNULL)
        whole = index(Path(work) / "alone")
        cluster = Cluster()
        try:
            for words in (name for name in FAULTS if options.only in name):
                found = try_fault(words, data, whole, cluster)
                word = "yes" if found["survived"] else "no"
                codes = ", ".join(map(str, found["codes"]))
                counts = f"{found.get('lost', '?')} | {found.get('twice', '?')}"
                rows.append(f"| {words} | {counts} | {codes} | {word} |")
                print(rows[-1], found.get("differ"), found.get("left"), flush=True)
                ends = [text.strip().splitlines()[-1:] for text in found["said"]]
                print("   ", ends if found["survived"] else found["said"], flush=True)
                bad += [] if found["survived"] else [words]
        finally:
            cluster.stop()
    if options.docs:
        write_section(options.docs, HEAD.format(n=options.pictures), rows)
    print(json.dumps({"faults": len(rows), "survived": len(rows) - len(bad), "bad": bad}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
