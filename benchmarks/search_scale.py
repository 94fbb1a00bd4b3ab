"""The search for near-duplicates alone, on many signatures: seconds, memory, candidates and recall.

CIFAR-10 pictures are grown to `--images` (`grown_signatures.py`), one in fifty a changed copy of
another: signatures and hashes, which is what a scan hands to the search.

    python benchmarks/search_scale.py [--real ../shared/data] [--images 60000 1000000]

Of each size it prints the candidates for each picture and the share of them that the gate lets
through, because sizes can be compared only where these are alike. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from grown_signatures import grow
from hard_negatives import Picture, cifar_pictures

from audit.neighbors.search import find_near_duplicates
from audit.neighbors.signatures import SIGNATURE_DTYPE


def measure_search(base: list[Picture], images: int) -> dict[str, float]:
    """Grow, search, count."""
    table, hashes = np.zeros(images, SIGNATURE_DTYPE), np.zeros(images, np.uint64)
    planted, made = [], 0
    for signatures, codes, pairs in grow(base, images):
        rows = slice(made, made + len(codes))
        table[rows], hashes[rows] = signatures, codes
        planted += pairs
        made = rows.stop
    # in the order of the keys, as a scan has them
    keys = [row.to_bytes(8, "big") for row in range(images)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    wall, cpu = time.perf_counter(), time.process_time()
    found = find_near_duplicates(table, keys, hashes, advance=_said())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    called = set(map(frozenset, found.pairs.pairs.tolist()))
    told = found.completeness
    candidates = told.verified_pairs
    for sentence in told.sentences():
        print(f"  {sentence}")
    return {
        "images": images,
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_gb": round(_peak_kb() / 1e6, 2),
        "candidates a picture": round(candidates / images, 2),
        "let through": round(1 - told.gated_pairs / max(1, candidates), 4),
        "planted": len(planted),
        "found": sum(frozenset(pair) in called for pair in planted),
        "pairs": len(called),
    }


def _peak_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def _said() -> partial[None]:
    """Say every tenth of the work."""
    begun, last = time.perf_counter(), [0.0]

    def say(share: float) -> None:
        if share >= last[0] + 0.1:
            last[0] = share
            print(f"  {share:.0%} after {time.perf_counter() - begun:,.0f} s", flush=True)

    return partial(say)


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--images", type=int, nargs="+", default=[60_000, 1_000_000])
    arguments = parser.parse_args()
    tar = arguments.real / "cifar10-mini.tar"
    if not tar.exists():
        print(f"No {tar}: give --real, the folder that holds it.")
        return
    base = [picture for _, picture in cifar_pictures(tar)]
    results = [_print(measure_search(base, images)) for images in arguments.images]
    print(json.dumps(results))


def _print(result: dict[str, float]) -> dict[str, float]:
    lines: Iterable[str] = (f"  {key}: {value}" for key, value in result.items())
    print(*lines, sep="\n", flush=True)
    return result


if __name__ == "__main__":
    main()
