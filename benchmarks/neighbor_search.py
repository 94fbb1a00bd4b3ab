"""How fast, how much memory, how complete: the Hamming search and the search by descriptor.

Hashes are real perceptual hashes (photographs, CIFAR-10, raccoons; drawn pictures where those are
absent), grown to the size asked for by flipping an even number of bits of each, 8 to 28 of them,
so that bits stay as unevenly used and as correlated as they really are; one in fifty of them is
given a partner within the radius. Uniform random codes would flatter every index.

Recall is counted against brute force over a sample of queries. faiss IndexBinaryFlat and
IndexBinaryMultiHash search the same codes for the same radius; their time is measured on a sample
of queries and multiplied up, and the line says so. MultiHash is complete when hashes x (flips + 1)
exceeds the radius.

    python benchmarks/neighbor_search.py --codes 1000000 --radius 10
    python benchmarks/neighbor_search.py --codes 10000000 --radius 6 --no-faiss
    python benchmarks/neighbor_search.py --dense 60000

Time is wall-clock on however many cores numba and OpenMP are given; peak memory is the process's.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import imagehash
import numpy as np
import numpy.typing as npt
from hard_negatives import cifar_pictures, logo, page, read
from PIL import Image

from audit.neighbors.candidates import merge_pairs, neighbour_pairs
from audit.neighbors.dense import find_nearest
from audit.neighbors.descriptor import describe
from audit.neighbors.hamming import find_code_pairs
from audit.neighbors.signatures import make_signature, stack_signatures
from audit.neighbors.verification import verify

Codes = npt.NDArray[np.uint64]


def real_pictures(real: Path) -> list[npt.NDArray[np.uint8]]:
    """Pictures to take hashes from."""
    if not real.exists():
        print(f"No pictures at {real}: hashes of drawn pictures are grown instead.")
        rng = np.random.default_rng(0)
        return [page(rng) for _ in range(100)] + [logo(rng) for _ in range(400)]
    files = [*(real / "photos").iterdir(), *(real / "raccoon" / "images").iterdir()]
    small = [picture for _, picture in cifar_pictures(real / "cifar10-mini.tar")]
    return [read(path) for path in sorted(files)] + small


def real_hashes(pictures: list[npt.NDArray[np.uint8]]) -> Codes:
    """Their 64-bit perceptual hashes."""
    return np.array(
        [int(str(imagehash.phash(Image.fromarray(p))), 16) for p in pictures], np.uint64
    )


def flip(codes: Codes, times: npt.NDArray[np.int64], rng: np.random.Generator) -> Codes:
    """Flip `times` distinct bits of each code."""
    out = codes.copy()
    for start in range(0, len(codes), 200_000):
        rows = slice(start, start + 200_000)
        order = np.argsort(rng.random((len(out[rows]), 64)), axis=1).astype(np.uint64)
        chosen = np.arange(64)[None, :] < times[rows, None]
        bits = np.where(chosen, np.uint64(1) << order, np.uint64(0))
        out[rows] ^= np.bitwise_or.reduce(bits, axis=1)
    return out


def grown(base: Codes, n: int, radius: int, seed: int = 0) -> tuple[Codes, int]:
    """Grow to n codes; return them shuffled, and how many pairs were planted."""
    rng = np.random.default_rng(seed)
    planted = n // 50
    seeds = base[rng.integers(0, len(base), n - planted)]
    codes = flip(seeds, 2 * rng.integers(4, 15, len(seeds)), rng)
    partner = codes[rng.choice(len(codes), planted, replace=False)]
    near = flip(partner, 2 * rng.integers(0, radius // 2 + 1, planted), rng)
    return rng.permutation(np.concatenate([codes, near])), planted


def peak_gigabytes() -> float:
    """Peak resident memory of this process so far (GB)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def measured_recall(codes: Codes, radius: int, pairs: npt.NDArray[np.int64], sample: int) -> float:
    """Share of the brute-force pairs of sampled queries that the search listed."""
    rng = np.random.default_rng(1)
    queries = np.sort(rng.choice(len(codes), min(sample, len(codes)), replace=False))
    truth, _ = within_brute(codes[queries], codes, radius)
    rows = np.stack([queries[truth[:, 0]], truth[:, 1]], axis=1)
    rows = np.sort(rows[rows[:, 0] != rows[:, 1]], axis=1)
    key = np.int64(len(codes))
    return float(np.isin(rows[:, 0] * key + rows[:, 1], pairs[:, 0] * key + pairs[:, 1]).mean())


def within_brute(
    queries: Codes, codes: Codes, radius: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All pairs within the radius by numpy alone: none of the code under test."""
    found = []
    for row, code in enumerate(queries):
        hits = np.flatnonzero(np.bitwise_count(codes ^ code) <= radius)
        found.append(np.stack([np.full(len(hits), row), hits], axis=1))
    pairs = np.concatenate(found)
    return pairs, pairs[:, 0]


def faiss_seconds(codes: Codes, radius: int, sample: int) -> dict[str, float | str]:
    """Seconds for all codes, from a sample of queries, with faiss's two binary indexes."""
    try:
        import faiss
    except ImportError:
        return {"faiss": "not installed (pip install 'dataset-preflight[bench]')"}
    data = np.ascontiguousarray(codes).view(np.uint8).reshape(-1, 8)
    queries = data[np.random.default_rng(2).choice(len(data), sample, replace=False)]
    times: dict[str, float | str] = {}
    flat = faiss.IndexBinaryFlat(64)
    chunks, flips = 4, radius // 4
    multi = faiss.IndexBinaryMultiHash(64, chunks, 64 // chunks)
    multi.nflip = flips
    for name, index in (("IndexBinaryFlat", flat), ("IndexBinaryMultiHash", multi)):
        start = time.perf_counter()
        index.add(data)
        built = time.perf_counter() - start
        start = time.perf_counter()
        # faiss counts strictly below its radius
        index.range_search(queries, radius + 1)
        each = (time.perf_counter() - start) / sample
        times[f"{name}, s (extrapolated from {sample} queries)"] = round(
            built + each * len(data), 1
        )
    return times


def hamming(
    arguments: argparse.Namespace, pictures: list[npt.NDArray[np.uint8]]
) -> dict[str, object]:
    """Grow, search, check, compare."""
    codes, planted = grown(real_hashes(pictures), arguments.codes, arguments.radius)
    find_code_pairs(codes[:1000], arguments.radius, plan="chunks")
    find_code_pairs(codes[:1000], arguments.radius, plan="brute")
    before = peak_gigabytes()
    start = time.perf_counter()
    found = find_code_pairs(codes, arguments.radius)
    seconds = time.perf_counter() - start
    peak = peak_gigabytes()
    pairs, _ = found.rows()
    result: dict[str, object] = {
        "codes": len(codes),
        "radius": arguments.radius,
        "seconds": round(seconds, 2),
        "peak_gb": round(peak, 2),
        "peak_gb_before": round(before, 2),
        "plan": found.plan,
        "pairs": len(pairs),
        "planted": planted,
        "compared": found.compared,
        "recall": measured_recall(codes, arguments.radius, pairs, arguments.sample),
    }
    if arguments.faiss:
        result |= faiss_seconds(codes, arguments.radius, min(arguments.sample, len(codes)))
    return result


def dense(n: int, pictures: list[npt.NDArray[np.uint8]]) -> dict[str, object]:
    """Grow n signatures by blending and noise; time each step of the dense search."""
    rng = np.random.default_rng(0)
    base = stack_signatures([make_signature(p) for p in pictures])
    one, two = base[rng.integers(0, len(base), n)], base[rng.integers(0, len(base), n)]
    table = one.copy()
    share = rng.uniform(0.25, 0.75, (n, 1, 1))
    table["grey"] = share * one["grey"] + (1 - share) * two["grey"]
    table["colour"] = share[..., None] * one["colour"] + (1 - share[..., None]) * two["colour"]
    times: dict[str, float] = {}
    describe(table[:2000]), find_nearest(describe(table[:2000]))
    verify(table[:100], describe(table[:100]), np.array([[0, 1]]), np.arange(100))
    for name in ("describe", "nearest", "verify"):
        start = time.perf_counter()
        if name == "describe":
            descriptors = describe(table)
        elif name == "find_nearest":
            found = find_nearest(descriptors, 12)
        else:
            candidates = merge_pairs(neighbour_pairs(found))
            verify(table, descriptors, candidates, np.arange(n))
        times[f"{name}_s"] = round(time.perf_counter() - start, 2)
    return {
        "images": n,
        **times,
        "candidates": len(candidates),
        "exact": found.exact,
        "recall": found.recall,
        "peak_gb": round(peak_gigabytes(), 2),
    }


def main() -> None:
    """Run what was asked for; one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", type=Path, default=Path("../shared/data"))
    parser.add_argument("--codes", type=int, default=0)
    parser.add_argument("--radius", type=int, default=10)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--dense", type=int, default=0)
    parser.add_argument("--faiss", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    if not arguments.codes and not arguments.dense:
        arguments.codes = 100_000
    pictures = real_pictures(arguments.real)
    result: dict[str, object] = {}
    if arguments.codes:
        result["hamming"] = hamming(arguments, pictures)
    if arguments.dense:
        result["dense"] = dense(arguments.dense, pictures)
    for part, lines in result.items():
        print(part, *(f"  {k}: {v}" for k, v in dict(lines).items()), sep="\n")  # type: ignore[call-overload]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
