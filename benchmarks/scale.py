"""How searches and scans grow: on grown pictures, from 20,000 rows to millions.

    python benchmarks/scale.py stages [20000 100000]
    python benchmarks/scale.py search [60000 1000000]
    python benchmarks/scale.py files [60000]
    python benchmarks/scale.py codes [1000000] [--radius 10] [--no-faiss]
    python benchmarks/scale.py dense [100000]

`stages`: what each stage of an audit takes, and the exponent of its growth between two sizes. The
files are real (hard links to small pictures, so that listing and the unchanged re-scan stat what a
user has); their features are those of others, their signatures and hashes grown. Everything else is
the scan as it is: list, measure (storing only, no decoder), relate, judge, publish; then a re-scan
of the unchanged tree beside `find -printf`, one after 100 files were removed, edited or added,
`audit recheck` and a report. For each stage: processor seconds and peak memory (resident, sampled
every 10 ms); `laps` are the scan's own table, which tells pairs, vectors and labels apart.

`search`: the search for near-duplicates alone on signatures and hashes, which is what a scan hands
to it. Of each size it prints the candidates for each picture and the share of them that the gate
lets through, because sizes can be compared only where these are alike.

`files`: from a folder of many small pictures to verified groups, by a whole scan. A blend keeps
edges of both its pictures, so that the nearest neighbours are nearer than in real data and
verification has rather more work.

Grown pictures are two of CIFAR-10's 6,000 blended at a random share, a random part cut out, some
mirrored, the light changed; one in fifty is a copy of another, changed in one of the ways of
`audit.neighbors.synthetic`; of these it is said how many were found. But for `files`, no file is
written: pictures become signatures and hashes at once.

`codes`: the Hamming search on real perceptual hashes,
grown by flipping an even number of bits of each, 8 to 28 of them, so that bits stay as unevenly
used and as correlated as they really are; one in fifty is given a partner within the radius.
Uniform random codes would flatter every index. Recall is counted against brute force over a sample
of queries. faiss IndexBinaryFlat and IndexBinaryMultiHash search the same codes for the same
radius; their time is measured on a sample of queries and multiplied up. MultiHash is complete when
hashes x (flips + 1) exceeds the radius. `dense`: each step of the search by descriptor.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import cv2
import imagehash
import numpy as np
import numpy.typing as npt
import polars as pl
import typer
from bench import (
    Document,
    Picture,
    cifar_files,
    cifar_pictures,
    hall,
    measures,
    peak_mb,
    read_picture,
    real_data,
    run_apart,
    timed,
)
from PIL import Image

from audit.machine.executors import Serial
from audit.neighbors.candidates import merge_pairs, neighbour_pairs
from audit.neighbors.dense import find_nearest
from audit.neighbors.descriptor import describe
from audit.neighbors.hamming import find_code_pairs
from audit.neighbors.search import find_near_duplicates
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.neighbors.verification import verify
from audit.picture.decode import Limits
from audit.picture.features import measure_pictures
from audit.picture.measure import FileJob, Measured, Measurer, feature_columns
from audit.picture.signatures import (
    SIGNATURE_DTYPE,
    Signatures,
    make_signature,
    stack_signatures,
)
from audit.report import collect_report, to_json
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.scanning.measuring import Progress
from audit.sources import open_source

CIFAR = "cifar10-mini.tar"
Sizes = Annotated[list[int] | None, typer.Argument()]
Codes = npt.NDArray[np.uint64]
app = hall(__doc__)


# ---- grown pictures ----

BLOCK = 5_000
COPIES = 50  # one picture in so many has a copy
KINDS = [kind for kind in TRANSFORMATIONS if kind != "crop_80"]
Sources = npt.NDArray[np.int64]  # (pictures, 2): the real ones a picture is blended from, in order
Made = tuple[Signatures, npt.NDArray[np.uint64], list[tuple[int, int]], Sources]
GROWN = np.dtype([("signature", SIGNATURE_DTYPE), ("hash", np.uint64)])


def grow(base: list[Picture], images: int) -> Iterator[Made]:
    """Yield what `grow_block` returns, block by block in order, made by all cores."""
    blocks = [(start, min(BLOCK, images - start)) for start in range(0, images, BLOCK)]
    # not forked: a process with the search's threads in it may hold their locks
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield from pool.map(partial(_grow, base), blocks)


def write_grown(base: list[Picture], images: int, path: Path) -> None:
    """Write so many records of `GROWN`, whole blocks, one after the other."""
    with path.open("wb") as file:
        for signatures, codes, _, _ in grow(base, images):
            records = np.empty(len(codes), GROWN)
            records["signature"], records["hash"] = signatures, codes
            file.write(records.tobytes())


def read_grown(path: Path, first: int, n: int) -> npt.NDArray[np.void]:
    """Return `n` records from number `first` on, begun again at the end of the file."""
    held = path.stat().st_size // GROWN.itemsize
    at = first % held
    part = np.fromfile(path, GROWN, min(n, held - at), offset=at * GROWN.itemsize)
    return part if len(part) == n else np.concatenate([part, read_grown(path, 0, n - len(part))])


def _grow(base: list[Picture], block: tuple[int, int]) -> Made:
    cv2.setNumThreads(1)
    return grow_block(base, *block)


def grow_block(base: list[Picture], start: int, size: int) -> Made:
    """Return signatures, hashes, the rows (copy, original) and the sources of one block."""
    rng = np.random.default_rng([start, 1])
    copies = size // COPIES
    made = [_grown(base, rng) for _ in range(size - copies)]
    pictures, sources = [picture for picture, _ in made], [both for _, both in made]
    planted = []
    for number in range(copies):
        original = number * COPIES
        kind = KINDS[(start // COPIES + number) % len(KINDS)]
        pictures.append(make_duplicate(pictures[original], kind, rng))
        sources.append(sources[original])
        planted.append((start + size - copies + number, start + original))
    hashes = [measure_pictures(picture[None])["phash"][0] for picture in pictures]
    signatures = stack_signatures([make_signature(picture) for picture in pictures])
    return signatures, np.array(hashes, np.uint64), planted, np.sort(sources, axis=1)


def _grown(base: list[Picture], rng: np.random.Generator) -> tuple[Picture, tuple[int, int]]:
    """Return a new picture: two blended, a part cut out, other light; and which two."""
    both = int(rng.integers(len(base))), int(rng.integers(len(base)))
    share = float(rng.uniform(0.3, 0.7))
    mixed = cv2.addWeighted(base[both[0]], share, base[both[1]], 1 - share, 0.0)
    side = mixed.shape[0]
    kept = int(rng.integers(int(0.75 * side), side + 1))
    top, left = rng.integers(0, side - kept + 1, 2)
    cut = cv2.resize(mixed[top : top + kept, left : left + kept], (side, side))
    lit = cv2.convertScaleAbs(
        cut, alpha=float(rng.uniform(0.7, 1.3)), beta=float(rng.uniform(-20, 20))
    )
    turned = lit[:, ::-1] if rng.random() < 0.5 else lit
    return np.ascontiguousarray(turned).astype(np.uint8), both


# ---- the search alone ----


def measure_search(base: list[Picture], images: int) -> dict[str, float]:
    table, hashes = np.zeros(images, SIGNATURE_DTYPE), np.zeros(images, np.uint64)
    sources = np.zeros((images, 2), np.int64)
    planted, made = [], 0
    for signatures, codes, pairs, both in grow(base, images):
        rows = slice(made, made + len(codes))
        table[rows], hashes[rows], sources[rows] = signatures, codes, both
        planted += pairs
        made = rows.stop
    # in the order of the keys, as a scan has them
    keys = [row.to_bytes(8, "big") for row in range(images)]
    with timed() as cost:
        found = find_near_duplicates(table, keys, hashes)
    called = set(map(frozenset, found.pairs.pairs.tolist()))
    extra = called - set(map(frozenset, planted))
    told = found.completeness
    candidates = told.verified_pairs
    for sentence in told.sentences():
        print(f"  {sentence}")
    return {
        "images": images,
        **cost,
        "peak_gb": round(peak_mb() / 1e3, 2),
        "candidates a picture": round(candidates / images, 2),
        "let through": round(1 - told.gated_pairs / max(1, candidates), 4),
        "planted": len(planted),
        "found": sum(frozenset(pair) in called for pair in planted),
        "pairs": len(called),
        **kinship(sources, np.array([*map(tuple, extra)], np.int64).reshape(-1, 2)),
    }


def kinship(sources: Sources, pairs: npt.NDArray[np.int64]) -> dict[str, int]:
    """How many pairs that nobody planted are blends of the same two pictures, of one, of none."""
    a, b = sources[pairs[:, 0]], sources[pairs[:, 1]]
    same = (a == b).all(axis=1)
    some = (a[:, :, None] == b[:, None, :]).any(axis=(1, 2)) & ~same
    return {
        "same sources": int(same.sum()),
        "one source": int(some.sum()),
        "unrelated": int((~same & ~some).sum()),
    }


@measures(app)
def search(images: Sizes = None, real: Path | None = None) -> Document:
    """How long, how much memory and how complete is the search for near-duplicates alone?"""
    base = [picture for _, picture in cifar_pictures(real_data(real, CIFAR))]
    found = {}
    for n in images or (60_000, 1_000_000):
        found[f"{n:,}"] = run_apart(measure_search, base, n)
        print(
            *(f"  {key}: {value}" for key, value in found[f"{n:,}"].items()), sep="\n", flush=True
        )
    return found


# ---- files ----


def write_files(base: list[Picture], folder: Path, n: int) -> list[tuple[str, str]]:
    """Write so many grown pictures; return the names of copies and their originals."""
    folder.mkdir()
    rng, made = np.random.default_rng([0, 1]), n - n // COPIES
    for number in range(n):
        if number < made:
            (picture, _), suffix = _grown(base, rng), ".jpg"
            options = [cv2.IMWRITE_JPEG_QUALITY, 92]
        else:
            original = read_picture(folder / f"{(number - made) * (COPIES - 1):07d}.jpg")
            kind = KINDS[(number - made) % len(KINDS)]
            picture, suffix = make_duplicate(original, kind, rng), ".png"
            options = []
        coded = cv2.imencode(suffix, picture[..., ::-1], options)[1]
        (folder / f"{number:07d}{suffix}").write_bytes(coded.tobytes())
    return [(f"{k:07d}.png", f"{(k - made) * (COPIES - 1):07d}.jpg") for k in range(made, n)]


def scan_files(folder: Path, run: Path) -> Document:
    """Scan with every check; return seconds by phase, memory, the pairs and groups."""
    with timed() as cost:
        result = scanning.scan(open_source([str(folder)]), run)
    with open_run(run) as store:
        pairs = store.rows(
            "SELECT x.id AS a, y.id AS b FROM pairs p JOIN images x ON x.pixel_hash = p.a "
            "JOIN images y ON y.pixel_hash = p.b"
        )
        groups = store.scalar("SELECT count(DISTINCT representative) FROM groups")
        told = store.scalar("SELECT completeness FROM check_runs WHERE code = 'DUP003'")
    return {
        **cost, **{f"{phase}_s": s for phase, s in result.seconds.items()}, "groups": groups,
        "peak_mb": round(peak_mb()), "told": told, "pairs": [(row["a"], row["b"]) for row in pairs],
    }  # fmt: skip


@measures(app)
def files(n: Annotated[int, typer.Argument()] = 60_000, real: Path | None = None) -> Document:
    """How long from a folder of small pictures to verified groups, and where does the time go?"""
    base = [picture for _, picture in cifar_pictures(real_data(real, CIFAR))]
    with tempfile.TemporaryDirectory() as work:
        planted = write_files(base, Path(work) / "images", n)
        found = run_apart(scan_files, Path(work) / "images", Path(work) / "run")
    called = {frozenset(pair) for pair in found["pairs"]}
    hits = sum(frozenset(pair) in called for pair in planted)
    found |= {"files": n, "planted": len(planted), "found": hits, "pairs": len(called)}
    print(*(f"  {key}: {value}" for key, value in found.items()), sep="\n")
    return found


# ---- stages of a scan ----

BASES, PER_FOLDER = 6000, 1000
PAGE = os.sysconf("SC_PAGE_SIZE")
Figures = dict[str, dict[str, float]]


class Stages:
    """Processor seconds and peak memory of each stage, from when it is entered to the next."""

    def __init__(self) -> None:
        """Begin to watch the memory."""
        self.found: Figures = {}
        self.name, self.peak, self.since = "", 0, time.process_time()
        threading.Thread(target=self._watch, daemon=True).start()

    def enter(self, name: str) -> None:
        """End the stage that runs and begin another; a stage that runs goes on."""
        if name == self.name:
            return
        now = time.process_time()
        if self.name:
            figures = self.found.setdefault(self.name, {"cpu_s": 0.0, "peak_mb": 0.0})
            figures["cpu_s"] = round(figures["cpu_s"] + now - self.since, 2)
            figures["peak_mb"] = max(figures["peak_mb"], round(self.peak / 1e6))
        self.name, self.peak, self.since = name, 0, now

    def follow(self, step: Progress) -> None:
        """Take the stages of a scan from its progress; publishing follows the last check."""
        ended = step.phase == "judge" and step.done == step.total
        self.enter("publish" if ended else step.phase)

    def _watch(self) -> None:
        while True:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * PAGE)
            time.sleep(0.01)


class MadeUp(Serial):
    """Rows and signatures without a decoder, grown ones; other work is really done."""

    def __init__(self, base: Measured, grown: Path) -> None:
        """Take the rows of the real pictures, and where the grown signatures lie."""
        self.rows = pl.DataFrame(pl.from_arrow(base.features))
        self.grown, self.made = grown, 0

    def run(self, work: Any, chunks: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield every chunk with its made-up answer."""
        for chunk in chunks:
            yield chunk, self._measured(chunk) if isinstance(work, Measurer) else work(chunk)

    def _measured(self, jobs: Sequence[FileJob]) -> Measured:
        first, rng = self.made, np.random.default_rng(self.made)
        self.made += len(jobs)
        names = [_digest(number) for number in range(first, self.made)]
        grown = read_grown(self.grown, first, len(jobs))
        rows = self.rows[rng.integers(len(self.rows), size=len(jobs))].with_columns(
            sample_id=pl.Series([job.sample_id for job in jobs]),
            file_key=pl.Series([job.file_key for job in jobs]),
            content_hash=pl.Series(names),
            pixel_hash=pl.Series([name[::-1][:32] for name in names]),
            phash=pl.Series(grown["hash"].copy()),
        )
        return Measured(rows.to_dicts(), feature_columns(), {}, [], names, list(grown["signature"]))


def _digest(number: int) -> str:
    return hashlib.blake2b(str(number).encode(), digest_size=32).hexdigest()


def link_files(real: Path, bases: Path, tree: Path, rows: int) -> list[Path]:
    """Write real pictures, and a tree of so many links to them: train/class/number.jpg."""
    bases.mkdir()
    entries = list(cifar_files(real))
    entries = entries[:: max(len(entries) // BASES, 1)][:BASES]
    for number, (_, data) in enumerate(entries):
        (bases / f"{number:03}.jpg").write_bytes(data)
    written = sorted(bases.iterdir())
    for number in range(rows):
        folder = tree / "train" / f"class{number // PER_FOLDER:04}"
        if number % PER_FOLDER == 0:
            folder.mkdir(parents=True)
        os.link(written[number % len(written)], folder / f"{number:07}.jpg")
    return written


def change_files(tree: Path, bases: list[Path]) -> None:
    """Remove 30 files, make 30 others, and add 40."""
    folders = sorted((tree / "train").iterdir())
    rng = np.random.default_rng(0)
    for number in range(100):
        folder = folders[int(rng.integers(len(folders)))]
        file = sorted(folder.iterdir())[number]
        if number >= 60:
            file = file.with_name(f"new-{number}.jpg")
        else:
            file.unlink()
        if number >= 30:
            os.link(bases[int(rng.integers(len(bases)))], file)


def show_laps(what: str, scanned: scanning.ScanResult) -> dict[str, float]:
    """What the scan's own table says: processor seconds of each stage, workers with them."""
    found = {k: round(lap.cpu_s + lap.workers_cpu_s, 2) for k, lap in scanned.laps.items()}
    print(f"  {what}, CPU s:", found, flush=True)
    return found


def measure_rows(real: Path, rows: int, work: Path) -> dict[str, Any]:
    tree, run = work / "tree", work / "run"
    bases = link_files(real, work / "bases", tree, rows)
    jobs = [FileJob(path.name, "", str(path)) for path in bases]
    base = Measurer(Limits())(jobs)
    write_grown([picture for _, picture in cifar_pictures(real)], rows + 100, work / "grown")
    stages, executor = Stages(), MadeUp(base, work / "grown")
    done = scanning.scan(open_source([str(tree)]), run, executor=executor, progress=stages.follow)
    first = show_laps("first scan", done)
    stages.enter("re-scan")
    with timed() as again:
        scanning.scan(open_source([str(tree)]), run, executor=executor)
    stages.enter("")
    change_files(tree, bases)
    stages.enter("100 changed")
    done = scanning.scan(open_source([str(tree)]), run, executor=executor)
    changed = show_laps("100 changed", done)
    stages.enter("recheck")
    scanning.recheck(run)
    stages.enter("report")
    n_bytes = sum(len(part) for part in to_json(collect_report(run)))
    stages.enter("find")
    line = ["find", str(tree), "-type", "f", "-printf", r"%P\t%s\t%T@\t%C@\n"]
    with timed() as find:
        subprocess.run(line, stdout=subprocess.DEVNULL, check=True)
    return {
        "rows": rows, "stages": stages.found, "find_s": find["cpu_s"], "rescan_s": again["cpu_s"],
        "rescan_over_find": round(again["cpu_s"] / max(find["cpu_s"], 0.01), 1),
        "report_mb": round(n_bytes / 1e6, 1), "laps": first, "laps_100_changed": changed,
    }  # fmt: skip


def growth(small: dict[str, Any], large: dict[str, Any]) -> dict[str, float]:
    ratio = math.log(large["rows"] / small["rows"])
    return {
        name: round(math.log(max(found["cpu_s"], 0.01) / max(before["cpu_s"], 0.01)) / ratio, 2)
        for name, found in large["stages"].items()
        if (before := small["stages"].get(name))
    }


@measures(app)
def stages(rows: Sizes = None, real: Path | None = None) -> Document:
    """What does each stage take, each size in a process of its own, and how fast does it grow?"""
    real, found = real_data(real, CIFAR), []
    for n in rows or (20_000, 100_000):
        with tempfile.TemporaryDirectory(prefix="scale-") as work:
            found.append(run_apart(measure_rows, real, n, Path(work)))
        print(f"{n:,} rows; re-scan {found[-1]['rescan_over_find']} x find -printf")
        for name, figures in found[-1]["stages"].items():
            print(f"  {name:10} {figures['cpu_s']:9.2f} CPU s {figures['peak_mb']:7,.0f} MB")
    exponents = growth(found[0], found[-1]) if len(found) > 1 else {}
    print("exponents of growth:", exponents)
    return {"sizes": found, "exponents": exponents}


# ---- codes ----


def some_pictures(real: Path) -> list[Picture]:
    """Return real pictures of every kind to take hashes from."""
    paths = sorted([*(real / "photos").iterdir(), *(real / "raccoon" / "images").iterdir()])
    return [*map(read_picture, paths), *(picture for _, picture in cifar_pictures(real))]


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


def grown_codes(base: Codes, n: int, radius: int, seed: int = 0) -> tuple[Codes, int]:
    """Grow to n codes, less the equal ones; return them shuffled, and how many were planted."""
    rng = np.random.default_rng(seed)
    planted = n // 50
    seeds = base[rng.integers(0, len(base), n - planted)]
    codes = flip(seeds, 2 * rng.integers(4, 15, len(seeds)), rng)
    partner = codes[rng.choice(len(codes), planted, replace=False)]
    near = flip(partner, 2 * rng.integers(0, radius // 2 + 1, planted), rng)
    return rng.permutation(np.unique(np.concatenate([codes, near]))), planted


def measured_recall(codes: Codes, radius: int, pairs: npt.NDArray[np.int64], sample: int) -> float:
    """Share of the brute-force pairs of sampled queries that the search listed."""
    rng = np.random.default_rng(1)
    queries = np.sort(rng.choice(len(codes), min(sample, len(codes)), replace=False))
    truth = within_brute(codes[queries], codes, radius)
    rows = np.stack([queries[truth[:, 0]], truth[:, 1]], axis=1)
    rows = np.sort(rows[rows[:, 0] != rows[:, 1]], axis=1)
    key = np.int64(len(codes))
    return float(np.isin(rows[:, 0] * key + rows[:, 1], pairs[:, 0] * key + pairs[:, 1]).mean())


def within_brute(queries: Codes, codes: Codes, radius: int) -> npt.NDArray[np.int64]:
    """All pairs within the radius by numpy alone: none of the code under test."""
    found = []
    for row, code in enumerate(queries):
        hits = np.flatnonzero(np.bitwise_count(codes ^ code) <= radius)
        found.append(np.stack([np.full(len(hits), row), hits], axis=1))
    return np.concatenate(found)


def faiss_seconds(codes: Codes, radius: int, sample: int) -> dict[str, float | str]:
    """Seconds for all codes, from a sample of queries, with faiss's two binary indexes."""
    try:
        import faiss
    except ImportError:
        return {"faiss": "not installed (pip install 'dataset-preflight[bench]')"}
    data = np.ascontiguousarray(codes).view(np.uint8).reshape(-1, 8)
    queries = data[np.random.default_rng(2).choice(len(data), sample, replace=False)]
    times: dict[str, float | str] = {}
    chunks = 4
    multi = faiss.IndexBinaryMultiHash(64, chunks, 64 // chunks)
    multi.nflip = radius // chunks
    indexes = {"IndexBinaryFlat": faiss.IndexBinaryFlat(64), "IndexBinaryMultiHash": multi}
    for name, index in indexes.items():
        with timed() as built:
            index.add(data)
        with timed() as searched:
            # faiss counts strictly below its radius
            index.range_search(queries, radius + 1)
        seconds = built["wall_s"] + searched["wall_s"] / sample * len(data)
        times[f"{name}, s (extrapolated from {sample} queries)"] = round(seconds, 1)
    return times


@measures(app)
def codes(
    n: Annotated[int, typer.Argument()] = 100_000,
    radius: int = 10,
    sample: int = 300,
    real: Path | None = None,
    faiss: bool = True,
) -> Document:
    """How fast, how much memory and how complete is the search among 64-bit hashes?"""
    pictures = some_pictures(real_data(real, "photos"))
    hashes = [int(str(imagehash.phash(Image.fromarray(p))), 16) for p in pictures]
    grown, planted = grown_codes(np.array(hashes, np.uint64), n, radius)
    for plan in ("chunks", "brute"):  # compiled
        find_code_pairs(grown[:1000], radius, plan=plan)
    before = peak_mb()
    with timed() as cost:
        found = find_code_pairs(grown, radius)
    peak, (pairs, _) = peak_mb(), found.rows()
    result = {
        "codes": n, "radius": radius, **cost, "peak_mb": round(peak),
        "peak_mb_before": round(before),
        "plan": found.plan, "pairs": len(pairs), "planted": planted,
        "recall": measured_recall(grown, radius, pairs, sample),
    }  # fmt: skip
    result |= faiss_seconds(grown, radius, min(sample, n)) if faiss else {}
    print(*(f"  {key}: {value}" for key, value in result.items()), sep="\n")
    return result


@measures(app)
def dense(n: Annotated[int, typer.Argument()] = 100_000, real: Path | None = None) -> Document:
    """How long does each step of the search by descriptor take, on signatures blended by twos?"""
    rng = np.random.default_rng(0)
    base = stack_signatures([make_signature(p) for p in some_pictures(real_data(real, "photos"))])
    one, two = base[rng.integers(0, len(base), n)], base[rng.integers(0, len(base), n)]
    table = one.copy()
    share = rng.uniform(0.25, 0.75, (n, 1, 1))
    table["grey"] = share * one["grey"] + (1 - share) * two["grey"]
    table["colour"] = share[..., None] * one["colour"] + (1 - share[..., None]) * two["colour"]
    find_nearest(describe(table[:2000]), 12)  # compiled
    verify(table[:100], describe(table[:100]), np.array([[0, 1]]), np.arange(100))
    with timed() as described:
        descriptors = describe(table)
    with timed() as searched:
        found = find_nearest(descriptors, 12)
    with timed() as verified:
        candidates = merge_pairs(neighbour_pairs(found))
        verify(table, descriptors, candidates, np.arange(n))
    return {
        "images": n, "describe": described, "nearest": searched, "verify": verified,
        "candidates": len(candidates), "exact": found.exact, "recall": found.recall,
        "peak_mb": round(peak_mb()),
    }  # fmt: skip


if __name__ == "__main__":
    app()
