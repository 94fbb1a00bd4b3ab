"""Serial, processes and a Ray cluster beside each other, and from which size the cluster pays.

    python benchmarks/executors.py [--sizes 600 2400] [--nodes 2]

Photographs of made-up hills (640 x 480 px) are scanned whole, near-duplicates included, once in
turn by each: one process, `processes` with so many as there are nodes, `ray` with as many nodes of
one core on this machine (`ray start`), without and with `--parts`. From two sizes: what a scan
costs beside the pictures (s) and a picture (ms of wall time). On one machine a cluster cannot win:
it has the same cores. With m machines like this one it pays from the size n at which

    fixed(ray --parts) + n * each(ray --parts) / m  <  fixed(processes) + n * each(processes)

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from node_faults import ADDRESS, ENVIRONMENT, Cluster, make_pictures

WAYS = ("one process", "processes", "ray", "ray --parts")


def seconds(way: str, data: Path, work: Path, nodes: int) -> float:
    """Return how long a scan takes from start to prompt, s."""
    line = [sys.executable, "-m", "audit", "scan", str(data), "--fail-on", "never", "--json"]
    line += ["--out", str(work / f"{data.name}-{way.replace(' ', '-')}")]
    if way.startswith("ray"):
        line += ["--executor", "ray", "--address", ADDRESS]
        line += ["--parts", str(work / "shared")] * way.endswith("--parts")
    else:
        line += ["--jobs", str(1 if way == "one process" else nodes)]
    began = time.perf_counter()
    subprocess.run(
        line, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    return time.perf_counter() - began


def main() -> None:
    """Measure, print the table and the sizes from which a cluster pays."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs=2, default=[600, 2400])
    parser.add_argument("--nodes", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args()
    small, large = options.sizes
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="executors-") as name:
        work = Path(name)
        for size in options.sizes:
            make_pictures(work / str(size), size, (640, 480))
        # kernels compiled, files in the page cache
        seconds("processes", work / str(small), work / "warm", options.nodes)
        cluster = Cluster(options.nodes)
        try:
            for way in WAYS:
                took = [
                    seconds(way, work / str(size), work, options.nodes) for size in (small, large)
                ]
                each = (took[1] - took[0]) / (large - small)
                found[way] = {
                    "small_s": round(took[0], 1), "large_s": round(took[1], 1),
                    "fixed_s": round(took[0] - small * each, 1), "each_ms": round(1e3 * each, 2),
                }  # fmt: skip
                print(f"{way:12} {found[way]}", flush=True)
        finally:
            cluster.stop()
    alone, spread = found["processes"], found["ray --parts"]
    pays = {}
    for machines in (2, 4, 16):
        gain = alone["each_ms"] - spread["each_ms"] / machines
        more = spread["fixed_s"] - alone["fixed_s"]
        pays[machines] = round(1e3 * more / gain) if gain > 0 else None
        print(f"{machines} machines like this pay from {pays[machines]} pictures", flush=True)
    print(json.dumps({"ways": found, "pays_from": pays}))


if __name__ == "__main__":
    main()
