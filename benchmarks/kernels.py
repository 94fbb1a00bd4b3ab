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
    from audit.embeddings.nearest import offer_neighbours
    from audit.embeddings.patches import FLOOR, SIDE, cut_patches, pool_codes

    patches, nearest = load("audit/embeddings/patches.py"), load("audit/embeddings/nearest.py")
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
    block = rng.normal(size=(256, 8192)).astype(np.float32)
    groups, owners = np.arange(256), np.arange(8192)

    def offer(function: Callable[..., None]) -> Any:
        index, best = np.full((256, 20), -1), np.full((256, 20), -np.inf, np.float32)
        function(block, groups, owners, 0, index, best)
        return index, best

    yield Case(
        "offer_neighbours", "256 x 8192",
        lambda: offer(offer_neighbours), lambda: offer(nearest.offer_neighbours),
    )  # fmt: skip


def annotation_cases(load: Callable[[str], ModuleType]) -> Iterator[Case]:
    from audit.annotations import box_pairs, box_statistics, coco, geometry

    names = ("geometry", "coco", "box_pairs", "box_statistics")
    shapes, outline, pairs, covers = (load(f"audit/annotations/{name}.py") for name in names)
    covers.area_in_common = pairs.area_in_common  # the kernel that it called
    counts = rng.integers(0, 30, 5000)
    offsets = np.concatenate([[0], counts.cumsum()])
    low = rng.random((offsets[-1], 2))
    corners = np.hstack([low, low + rng.random(low.shape) / 4])
    order = np.lexsort((corners[:, 1], np.repeat(np.arange(5000), counts)))
    corners, codes = corners[order], rng.integers(0, 3, len(corners))
    yield Case(
        "fill_pairs", "5,000 pictures",
        lambda: box_pairs.sweep(corners, offsets, codes)[:2],
        lambda: pairs.sweep(corners, offsets, codes, -1)[:2],
    )  # fmt: skip
    yield Case(
        "fill_cover", "5,000 pictures",
        lambda: box_statistics.cover_and_overlap(corners, offsets),
        lambda: covers.cover_and_overlap(corners, offsets, -1),
    )  # fmt: skip
    flat, ends = rng.random(80_000), np.arange(0, 80_001, 80)
    yield Case(
        "ring_facts", "1,000 rings of 40",
        lambda: geometry.ring_facts(flat, ends), lambda: shapes.ring_facts(flat, ends, -1),
    )  # fmt: skip
    runs = rng.integers(0, 90, 4000)
    yield Case(
        "run_extent", "4,000 runs",
        lambda: geometry.run_extent(runs, 480), lambda: shapes.run_extent(runs, 480),
    )  # fmt: skip
    packed = "".join(chr(c) for c in rng.integers(48, 80, 4000))
    yield Case(
        "unpack_runs", "4,000 runs",
        lambda: geometry.unpack_runs(packed), lambda: shapes.unpack_runs(packed),
    )  # fmt: skip
    entry = '{"id": 1, "bbox": [1.5, 2.5, 30.25, 4], "segmentation": [[1, 2, 3, 4]]}'
    text = np.frombuffer(f'{{"annotations": [{", ".join([entry] * 20_000)}]}}'.encode(), np.uint8)

    def elements(members: Any) -> Any:
        return [x for part in members for x in (part.starts, part.ends, part.repeats * 1)]

    yield Case(
        "split_list", "1.5 MB",
        lambda: elements(coco.scan_document(text, ("annotations",))),
        lambda: elements(outline.scan_document(text, ("annotations",), 0)),
    )  # fmt: skip


def detection_cases(load: Callable[[str], ModuleType]) -> Iterator[Case]:
    from audit.subset import matching, precision

    old_matching, old_precision = (load(f"audit/subset/{n}.py") for n in ("matching", "precision"))
    each, objects = rng.integers(0, 20, 300), rng.integers(0, 9, 300)
    begin, ends = np.concatenate([[0], each.cumsum()]), objects.cumsum()
    found, truth = (
        np.add(rng.random((int(k), 4)), [0, 0, 0.5, 0.5]) for k in (begin[-1], ends[-1])
    )
    crowd = rng.random(len(truth)) < 0.05
    counts, far = (rng.random((4, len(x))) < 0.7 for x in (truth, found))
    given = (begin, ends - objects, ends, found, truth, crowd, counts, far, matching.THRESHOLDS)

    def assign(module: Any) -> Any:
        marks = [np.zeros((4, len(found)), np.uint16) for _ in range(2)]
        module.assign(*given, *marks)
        return [mark.astype(int) for mark in marks]

    yield Case(
        "assign_detections", "300 pictures",
        lambda: assign(matching), lambda: assign(old_matching),
    )  # fmt: skip
    hit, skip = rng.integers(0, 1024, (2, 20_000)).astype(np.uint16)
    ranking = (np.ones(20_000), hit, skip, np.arange(10), 9000.0, True)
    yield Case(
        "walk_ranking", "20,000 detections",
        lambda: precision._curve(*ranking)[1:], lambda: old_precision._curve(*ranking)[1:],
    )  # fmt: skip


CASES = (picture_cases, embedding_cases, annotation_cases, detection_cases)


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
