"""Kernels in C against numba's of a commit that has them, and against their plain forms.

`python benchmarks/kernels.py [COMMIT]`, with numba installed: CPU time, medians of the ratios of 11
alternating rounds, and the largest difference of the results. The old modules are read by `git
show` and run under names of their own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import cv2
import numpy as np

from audit.kernels.library import PATH_VARIABLE, find_kernel, load_kernels

LAST_WITH_NUMBA = "06b52763"
ROUNDS = 11
MIN_SECONDS = 0.02
Call = Callable[[], Any]
rng = np.random.default_rng(0)


class Case(NamedTuple):
    """A kernel with what it replaces: both return the arrays that they make."""

    kernel: str
    unit: str
    ours: Call
    numba: Call


def old_module(commit: str, path: str, folder: Path) -> ModuleType:
    """Return a module as it was at a commit."""
    source = subprocess.run(["git", "show", f"{commit}:{path}"], capture_output=True, check=True)
    name = f"old_{Path(path).stem}"
    file = folder / f"{name}.py"
    file.write_bytes(source.stdout)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec
    assert spec.loader
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def photograph(height: int, width: int) -> Any:
    coarse = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    smooth = cv2.resize(coarse, (width, height))
    return np.clip(smooth + rng.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8)


def picture_cases(load: Callable[[str], ModuleType]) -> Iterator[Case]:
    from audit.picture.hashing import reduce_luma
    from audit.picture.statistics import measure_stack

    features, hashing = load("audit/picture/features.py"), load("audit/picture/hashing.py")

    def statistics(stack: Any) -> Any:
        n, height, width = stack.shape[:3]
        planes = cv2.split(stack.reshape(n * height, width, 3))
        luma, numbers = np.empty((n, height, width), np.uint8), np.empty((n, 13))
        counts, spreads = np.empty((n, 256), np.int64), np.empty((n, 256), np.int64)
        flat = (plane.reshape(n, -1) for plane in planes)
        features._statistics(stack, *flat, luma, numbers, counts, spreads)
        return luma, numbers, counts, spreads

    sizes = {"photograph": (1, 250, 187), "100 pictures of 32 px": (100, 32, 32)}
    for unit, (n, height, width) in sizes.items():
        stack = np.stack([photograph(height, width) for _ in range(n)])
        yield Case(
            "fill_statistics", unit,
            lambda s=stack: measure_stack(s), lambda s=stack: statistics(s),
        )  # fmt: skip
        luma = np.ascontiguousarray(stack[..., 1])
        yield Case(
            "reduce_rows", unit,
            lambda x=luma: reduce_luma(x), lambda x=luma: hashing.reduce_luma(x),
        )  # fmt: skip


def embedding_cases(load: Callable[[str], ModuleType]) -> Iterator[Case]:
    from audit.embeddings.patches import FLOOR, SIDE, cut_patches, pool_codes

    patches = load("audit/embeddings/patches.py")
    pictures = rng.uniform(0, 255, (20, 32, 32, 3)).astype(np.float32)
    places = (32 - SIDE) // 2 + 1

    def cut() -> Any:
        out = np.empty((len(pictures) * places**2, SIDE * SIDE * 3), np.float32)
        patches.cut_patches(pictures, SIDE, 2, np.float32(FLOOR), out)
        return out

    yield Case("cut_patches", "20 pictures", lambda: cut_patches(pictures, 2), cut)
    white = rng.normal(size=(20 * places**2, 24)).astype(np.float32)
    words = rng.normal(size=(400, 24)).astype(np.float32)
    norms, products = (words**2).sum(1), white @ words.T

    def pool() -> Any:
        out = np.zeros((20, 2, 2, 400), np.float32)
        patches.pool_codes(products.copy(), white, norms, places, out)
        return out

    def ours() -> Any:
        return pool_codes(products.copy(), white, norms, places)

    yield Case("pool_codes", "20 pictures", ours, pool)


def search_cases(load: Callable[[str], ModuleType]) -> Iterator[Case]:
    from audit.neighbors import gate, hamming
    from audit.neighbors.kernels import offers, plain, popcount
    from audit.neighbors.verification import ABANDON, MARGINS, STARTS

    folder = "audit/neighbors/kernels"
    for name in ("agreement", "registration", "gate"):
        sys.modules[f"audit.neighbors.kernels.{name}"] = load(f"{folder}/{name}.py")
    registration, old_gate = load(f"{folder}/registration.py"), load(f"{folder}/gate.py")
    old_popcount, old_offers = load(f"{folder}/popcount.py"), load(f"{folder}/offers.py")
    images = [photograph(80, 80) for _ in range(60)]
    cut = [image[y : y + 64, x : x + 64] for image in images for y, x in ((0, 0), (5, 9), (12, 3))]
    grey = np.array([cv2.resize(i, (32, 32), interpolation=cv2.INTER_AREA)[..., 1] for i in cut])
    colour = np.array([cv2.resize(i, (8, 8), interpolation=cv2.INTER_AREA) for i in cut])
    first = np.sort(rng.integers(0, 60, 1000)) * 3
    copy = rng.random(1000) < 0.1
    second = np.where(copy, first + rng.integers(1, 3, 1000), rng.integers(0, 180, 1000))
    pairs, turned = np.stack([first, second], 1), np.where(copy, 0, rng.integers(0, 8, 1000))
    needed = rng.uniform(-0.2, 0.9, 1000)

    def align(function: Callable[..., None]) -> Any:
        maps, scores = np.zeros((1000, 6)), np.full((1000, 14), -1.0)
        function(grey, colour, pairs, turned, STARTS, MARGINS, ABANDON, maps, scores)
        return maps, scores

    yield Case(
        "align_batch", "1,000 pairs",
        lambda: align(find_kernel("align_batch") or plain.align),
        lambda: align(registration.align_batch),
    )  # fmt: skip

    def passes(function: Callable[..., None]) -> Any:
        passed = np.zeros(1000, np.bool_)
        function(grey, pairs, turned, gate.STARTS, gate.N_STEPS, needed, passed)
        return passed * 1

    yield Case(
        "pass_batch", "1,000 pairs",
        lambda: passes(find_kernel("pass_batch") or plain.pass_pairs),
        lambda: passes(old_gate.pass_batch),
    )  # fmt: skip
    parts = rng.normal(0, 0.2, (8, 384 * 384)).astype(np.float32)
    tables = [np.empty(384 * 384, np.float32) for _ in range(8)]

    def best(module: Any) -> Any:
        module.best_orientation(parts, tables[0])
        return tables[0]

    yield Case("best_orientation", "384 x 384", lambda: best(offers), lambda: best(old_offers))
    for table in tables:
        offers.best_orientation(parts[:, rng.permutation(384 * 384)], table)
    rows = np.arange(384)

    def offer(module: Any) -> Any:
        value, index = np.full((384, 10), -2, np.float32), np.full((384, 10), -1)
        for k, table in enumerate(tables):
            module.offer_rows(table.reshape(384, 384), rows, rows + 384 * k, value, index, 0)
        return value, index

    yield Case("offer_rows", "8 of 384 x 384", lambda: offer(offers), lambda: offer(old_offers))
    codes = np.sort(rng.integers(0, 2**64, 60_000, dtype=np.uint64))
    plan = hamming._priced(codes, len(codes), rng.permutation(64).astype(np.uint8), 4, 10)
    assert plan
    buckets, tasks = hamming._buckets(popcount.permute_bits(codes, plan.permutation), 10, plan, 1)

    def compare(function: Callable[..., None], given: Any, tasks: int, old: bool) -> Any:
        ends = np.arange(1, tasks + 1) * 3000
        edges = np.append(0, ends) if old else np.stack([ends - 3000, ends], 1)
        out = [np.zeros(ends[-1], kind) for kind in (np.int32, np.int32, np.uint8)]
        function(*given, np.arange(tasks), edges, *out, count := np.zeros(tasks, np.int64))
        return np.sort(out[0]), count

    given = (codes[:512].copy(), codes, False, 10, np.linspace(0, 512, 9).astype(np.int64))
    yield Case(
        "compare_rows", "512 x 60,000",
        lambda: compare(popcount.compare_rows, given, 8, False),
        lambda: compare(old_popcount.brute_kernel, given, 8, True),
    )  # fmt: skip
    yield Case(
        "compare_buckets", "60,000 codes",
        lambda: compare(popcount.compare_buckets, buckets.args, tasks, False),
        lambda: compare(old_popcount.chunk_kernel, buckets.args, tasks, True),
    )  # fmt: skip


CASES = (picture_cases, embedding_cases, search_cases)


def seconds_of(call: Call, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def ratio_of(call: Call, other: Call) -> tuple[float, float, float]:
    """Return the median seconds of both, and the median ratio of a round."""
    call(), other()
    repeats = max(1, int(MIN_SECONDS / max(seconds_of(other, 1), 1e-6)))
    both = np.array(
        [(seconds_of(call, repeats), seconds_of(other, repeats)) for _ in range(ROUNDS)]
    )
    return *np.median(both, axis=0), float(np.median(both[:, 0] / both[:, 1]))


def difference(ours: Any, other: Any) -> float:
    """Return the largest difference of results, arrays or tuples of them."""
    if not isinstance(ours, np.ndarray):
        return max(difference(a, b) for a, b in zip(ours, other, strict=True))
    equal = (ours == other) | (np.isnan(ours) & np.isnan(other))
    return float(np.max(np.abs(np.where(equal, 0, ours - other).astype(float)), initial=0))


def use_library(use: bool) -> None:
    os.environ[PATH_VARIABLE] = "" if use else "off"
    load_kernels.cache_clear()


def main() -> None:
    commit = sys.argv[1] if len(sys.argv) > 1 else LAST_WITH_NUMBA
    cv2.setNumThreads(1)
    print("| kernel | unit | C, us | numba, us | ratio | difference | plain / C | difference |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        compiled = old_module(commit, "audit/machine/compiled.py", Path(folder))
        sys.modules["audit.machine.compiled"] = compiled
        for cases in CASES:
            for case in cases(lambda path: old_module(commit, path, Path(folder))):
                use_library(True)
                assert find_kernel(case.kernel), "no library: run make"
                in_c, numba, ratio = ratio_of(case.ours, case.numba)
                result, apart = case.ours(), difference(case.ours(), case.numba())
                use_library(False)
                plain, plain_apart = seconds_of(case.ours, 1), difference(case.ours(), result)
                print(
                    f"| `{case.kernel}` | {case.unit} | {in_c * 1e6:.0f} | {numba * 1e6:.0f} | "
                    f"{ratio:.2f} | {apart:.2g} | {plain / in_c:.1f} | {plain_apart:.2g} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
