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


CASES = (picture_cases, embedding_cases)


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
    commit = sys.argv[1] if len(sys.argv) > 1 else "main"
    cv2.setNumThreads(1)
    print("| kernel | unit | C, us | numba, us | ratio | difference | plain / C | difference |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
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
