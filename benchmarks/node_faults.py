"""Lose nodes, workers, the head and the shared place of a Ray cluster, and count what is lost.

    python benchmarks/node_faults.py strike [--pictures 1500] [--only WORD] [--docs F.md]
    python benchmarks/node_faults.py executors [600 2400] [--nodes 2]

`strike`: two real nodes on this machine (`ray start` twice). Each fault strikes one `audit scan
--executor ray --parts PLACE` when some parts are there; then, where that ended, the same command
runs again. Survived: no traceback, and the run equals one of this machine alone row for row. Full
disks are a file system in memory of 2 MB, which needs the right to mount one.

`executors`: one process, processes and a cluster beside each other, and from which size the cluster
pays. Photographs of made-up hills (640 x 480 px) are scanned whole, near-duplicates included, once
in turn by each: one process, `processes` with so many as there are nodes, `ray` with as many nodes
of one core on this machine, without and with `--parts`. From two sizes: what a scan costs beside
the pictures (s) and a picture (ms of wall time). On one machine a cluster cannot win: it has the
same cores. With m machines like this one it pays from the size n at which

    fixed(ray --parts) + n * each(ray --parts) / m  <  fixed(processes) + n * each(processes)
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from bench import ENVIRONMENT, Document, hall, measures, run_command
from faults import EMPTY, Faults, Index, Scene, Struck, conclude, differences, index
from PIL import Image

PORT = 6407
PARTS_FIRST = 3  # what lies on the shared place when a fault strikes
ADDRESS = f"127.0.0.1:{PORT}"
ENVIRONMENT |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
app = hall(__doc__)


class Cluster:
    """A head node and others, each a process group of its own."""

    def __init__(self, nodes: int) -> None:
        """Start them."""
        self.groups: dict[str, subprocess.Popen[bytes]] = {}
        self.begin(nodes)

    def begin(self, nodes: int) -> None:
        """Start so many nodes."""
        self.start("head", "--head", f"--port={PORT}", "--include-dashboard=false")
        for number in range(1, nodes):
            self.start("node" if number == 1 else f"node {number}", f"--address={ADDRESS}")

    def __enter__(self) -> Cluster:
        """Go on until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what is left."""
        self.stop()

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


class ClusterScene(Scene):
    """A dataset, a cluster, a shared place and a run."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        """Share a folder between the nodes."""
        super().__init__(folder, folder.parent / "data", folder / "run", random.Random(0))
        self.cluster, self.place = cluster, folder / "shared"

    def begin(self, verb: str = "scan", **options: Any) -> subprocess.Popen[str]:
        """Start a scan by the cluster."""
        words = ["--executor", "ray", "--address", ADDRESS, "--parts", self.place]
        return self.start(verb, self.data, "--out", self.run, "--fail-on", "never", *words)

    def parts(self) -> list[Path]:
        """Return the rows on the shared place."""
        return sorted(self.place.glob("parts-*/*.features.parquet"))

    @contextlib.contextmanager
    def scanned(self, *, searching: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Begin a scan; what is done then strikes it at its first parts, or during the search."""
        scan, ready = self.begin(), False
        while scan.poll() is None and not ready:
            time.sleep(0.005)
            descriptors = any(self.place.glob("parts-*/search/descriptors-*"))
            ready = descriptors if searching else len(self.parts()) >= PARTS_FIRST
        yield scan
        self.end(scan)


def processes(word: str) -> Iterator[int]:
    """Yield the processes whose command line begins with a pattern."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if re.match(word, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()):
                yield int(entry.name)


def kill_node(scene: ClusterScene, searching: bool = False) -> None:
    with scene.scanned(searching=searching):
        scene.cluster.kill("node")


def replace_node(scene: ClusterScene) -> None:
    with scene.scanned():
        scene.cluster.kill("node")
        scene.cluster.start("node", f"--address={ADDRESS}")


def kill_all(scene: ClusterScene, word: str) -> None:
    """Kill the processes whose command line begins with a pattern, once parts are there."""
    with scene.scanned():
        for number in processes(word):
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)


def kill_scan(scene: ClusterScene, searching: bool = False) -> None:
    with scene.scanned(searching=searching) as scan:
        scan.kill()


def lose_head(scene: ClusterScene) -> None:
    kill_scan(scene)
    shutil.rmtree(scene.run, ignore_errors=True)


def kill_head(scene: ClusterScene) -> None:
    with scene.scanned():
        scene.cluster.kill("head")
    scene.cluster.stop()
    scene.cluster.begin(2)


def damage_parts(scene: ClusterScene) -> None:
    """Cut one part, flip a bit in another, empty a third."""
    kill_scan(scene)
    changes: list[Callable[[bytes], bytes]] = [
        lambda d: d[: len(d) // 2], lambda d: d[:99] + bytes([d[99] ^ 4]) + d[100:], lambda d: b""
    ]  # fmt: skip
    for path, change in zip(scene.parts(), changes, strict=False):
        path.write_bytes(change(path.read_bytes()))
    shutil.rmtree(scene.run, ignore_errors=True)


def remove_place(scene: ClusterScene) -> None:
    with scene.scanned():
        shutil.rmtree(scene.place, ignore_errors=True)


def full_disk(scene: ClusterScene, megabytes: float) -> None:
    """Scan with a shared place on a disk that is full, then give it room."""
    disk = scene.folder / "disk"
    disk.mkdir()
    size = f"size={int(megabytes * 1e6)}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    scene.place = disk / "shared"
    scene.scan()
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)


FAULTS = Faults()  # each runs the struck scan
fault = FAULTS.add
_CHUNKS = "the processes of Ray on all nodes that do chunks are killed"
fault("nothing", Scene.scan)
fault("a node is killed", kill_node)
fault("a node is killed, and another joins", replace_node)
fault("a node is killed during the search for near-duplicates", kill_node, searching=True)
fault(_CHUNKS, kill_all, "ray::do_chunk")
fault("the processes that open files are killed", kill_all, ".*-m audit.picture.worker")
fault("the scan on the head is killed", kill_scan)
fault("the scan on the head is killed, and its disk is lost", lose_head)
fault("the scan on the head is killed during the search", kill_scan, searching=True)
fault("the head node of the cluster is killed", kill_head)
fault("parts are damaged after a kill", damage_parts)
fault("the shared place is removed while nodes write", remove_place)
fault("the disk of the shared place is full of parts", full_disk, 0.4)
fault("the disk of the shared place is full during the search", full_disk, 3.4)


def try_fault(words: str, data: Path, whole: Index, cluster: Cluster) -> Struck:
    """Strike one scan, run it again until it published, and compare."""
    folder = data.parent / "scene"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    scene, found, broke = ClusterScene(folder, cluster), {}, []
    try:
        FAULTS[words](scene)
        if scene.commands[-1].code != 0:
            scene.scan()
        found = index(scene.run)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        broke = [repr(error)]
    finally:
        subprocess.run(["umount", str(folder / "disk")], capture_output=True, check=False)
        if "node" not in cluster.groups:
            cluster.start("node", f"--address={ADDRESS}")
    differ, twice = differences(whole, found)
    left = [str(path) for path in scene.place.glob("parts-*")]
    lost = max(0, whole["features"].height - found.get("features", EMPTY).height)
    said = [done.said[-2000:].strip() for done in scene.commands]
    survived = not (broke or differ or left or any("Traceback" in text for text in said))
    ends = [text.splitlines()[-1] for text in said if text] if survived else said
    codes = ", ".join(str(done.code) for done in scene.commands)
    columns = [lost, twice, codes, "yes" if survived else "no"]
    return words, columns, survived, [*broke, *differ, *left, *ends]


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

Written by `python benchmarks/node_faults.py strike --docs docs/faults.md`: {n:,} pictures, two
nodes of a Ray cluster on one machine, parts on a shared folder. Each fault strikes one scan; where
that ends by a sentence, the same command runs again. Survived: the run equals one of this machine
alone row for row, with no traceback and nothing left on the shared place.

| fault | rows lost | rows twice | exit codes | survived |
|---|---:|---:|---|---|
"""


@measures(app)
def strike(pictures: int = 1500, only: str = "", docs: Path | None = None) -> tuple[Document, bool]:
    """Let every fault strike once; ends with 1 where one was not survived."""
    with tempfile.TemporaryDirectory(prefix="node-faults-") as work:
        data = Path(work) / "data"
        make_pictures(data, pictures)
        run_command(["scan", data, "--out", f"{work}/alone", "--fail-on", "never"])
        whole = index(Path(work) / "alone")
        with Cluster(2) as cluster:
            struck = (try_fault(one, data, whole, cluster) for one in FAULTS if only in one)
            return conclude(struck, docs, HEAD.format(n=pictures))


# ---- what each executor costs ----

WAYS = ("one process", "processes", "ray", "ray --parts")


def seconds(way: str, data: Path, work: Path, nodes: int) -> float:
    """Return how long a scan takes from start to prompt, s."""
    words: list[object] = ["scan", data, "--fail-on", "never", "--json"]
    words += ["--out", work / f"{data.name}-{way.replace(' ', '-')}"]
    if way.startswith("ray"):
        words += ["--executor", "ray", "--address", ADDRESS]
        words += ["--parts", work / "shared"] * way.endswith("--parts")
    else:
        words += ["--jobs", 1 if way == "one process" else nodes]
    return float(run_command(words)["wall_s"])


@measures(app)
def executors(
    small: Annotated[int, typer.Argument()] = 600,
    large: Annotated[int, typer.Argument()] = 2400,
    nodes: int = os.cpu_count() or 2,
) -> Document:
    """What does a scan cost with each executor, and from which size does a cluster pay?"""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="executors-") as name:
        work = Path(name)
        for size in (small, large):
            make_pictures(work / str(size), size, (640, 480))
        # kernels compiled, files in the page cache
        seconds("processes", work / str(small), work / "warm", nodes)
        with Cluster(nodes):
            for way in WAYS:
                took = [seconds(way, work / str(size), work, nodes) for size in (small, large)]
                each = (took[1] - took[0]) / (large - small)
                found[way] = {
                    "small_s": round(took[0], 1), "large_s": round(took[1], 1),
                    "fixed_s": round(took[0] - small * each, 1), "each_ms": round(1e3 * each, 2),
                }  # fmt: skip
                print(f"{way:12} {found[way]}", flush=True)
    alone, spread = found["processes"], found["ray --parts"]
    pays = {}
    for machines in (2, 4, 16):
        gain = alone["each_ms"] - spread["each_ms"] / machines
        more = spread["fixed_s"] - alone["fixed_s"]
        pays[machines] = round(1e3 * more / gain) if gain > 0 else None
        print(f"{machines} machines like this pay from {pays[machines]} pictures", flush=True)
    return {"ways": found, "pays_from": pays}


if __name__ == "__main__":
    app()
