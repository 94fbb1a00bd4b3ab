"""How often the statistical checks speak where nothing is wrong, and where something is.

    python benchmarks/false_alarms.py [FOLDER ...] [--datasets 500] [--planted 40] [--labels 100]
        [--results F.jsonl] [--pictures F.parquet] [--shard 0/2]

judges right labels over vectors that are drawn: classes that overlap or lie apart, normal, of heavy
tails (rows or columns of Student's t), skewed, of several clusters, of unlike spreads; 2 to 20
classes, balanced or not, 100 to 3,000 pictures. LABEL006 on any of them is a false alarm.

Then it scans real pictures once and draws null datasets from those without any finding: 300 to
1,500 pictures, 2 to 10 classes, 2 or 3 splits. Splits are dealt at random, and labels in every
other dataset (the rest keep the labels they have); files are renamed in one of ten usual ways;
sizes, qualities, cameras, times and columns of a manifest are dealt at random too. Every check
judges each; any finding is a false alarm. Then effects of stated size are planted in such datasets,
to see that silence is not all the checks are capable of.

With --results each dataset appends one line, what is there is not judged again, and the summary
counts every line of the file: the run can be stopped, resumed, and split into shards. Such a file
is of one state of the checks; take another file after a change. --pictures keeps the measured
columns of the scan.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from bench import Document, hall, measures, save_row, saved_rows, shard_of

from audit.checking.check import all_checks, make_params
from audit.checks.label_suspect import SuspectLabel
from audit.embeddings.judged import judge_vectors
from audit.embeddings.nearest import compare_axes, nearest_rows
from audit.embeddings.patches import scale_columns
from audit.embeddings.ridge import decompose
from audit.picture.features import FEATURE_ROW
from audit.run.run_version import open_run
from audit.run.store import Store
from audit.scanning import scanning
from audit.sources import open_source
from audit.statistics.intervals import wilson

app = hall(__doc__)
Rng = np.random.Generator
Name = Callable[[int, Rng, str], str]

# Ten usual ways to call the n-th file; numbers are dealt at random over the pictures.
NAMES: Mapping[str, Name] = {
    "padded": lambda i, rng, label: f"{i:04d}",
    "plain": lambda i, rng, label: f"{i}",
    "class and number": lambda i, rng, label: f"{label}_{i:05d}",
    "camera": lambda i, rng, label: f"IMG_{i:04d}",
    "camera without a separator": lambda i, rng, label: f"DSC{i:05d}",
    "synset": lambda i, rng, label: f"n0{sum(map(ord, label)) * 7919}_{i}",
    "clips": lambda i, rng, label: f"clip{i // 12:03d}_{i % 12:04d}",
    "tracks": lambda i, rng, label: f"{i // 30:05d}_{i % 30:05d}",
    "copied by a browser": lambda i, rng, label: f"image ({i})",
    "hash": lambda i, rng, label: uuid.UUID(bytes=rng.bytes(16)).hex,
}
CLASSES = ("ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay")


SILENT = """
    SELECT f.*, p.label AS own FROM features f JOIN pictures p ON p.id = f.sample_id
    WHERE f.status = 'ok' AND p.representative IS NULL
    AND f.sample_id NOT IN (SELECT sample_id FROM finding_samples)
    QUALIFY row_number() OVER (PARTITION BY f.pixel_hash ORDER BY f.sample_id) = 1
    ORDER BY f.sample_id
"""


def silent_pictures(folders: list[str], kept: Path | None, jobs: int) -> pl.DataFrame:
    """Return the measured columns of pictures without finding or copy, from a scan of folders.

    They are read from `kept` where that is there, and written to it.
    """
    if kept and kept.exists():
        return pl.read_parquet(kept)
    parts = []
    for folder in folders:
        with tempfile.TemporaryDirectory() as run:
            scanning.scan(open_source([folder]), Path(run), jobs=jobs)
            with open_run(Path(run)) as store:
                parts.append(store.query(SILENT))
    pictures = pl.concat(parts)
    if kept:
        pictures.write_parquet(kept)
    return pictures


def null_dataset(pictures: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """Return pictures with everything that is not measured on them dealt at random."""
    n = min(int(rng.integers(300, 1500)), len(pictures))
    # A class has 20 pictures and more in each split: what is small by chance is not nothing wrong.
    k = int(rng.integers(2, 1 + min(10, n // 140)))
    sizes = pictures["own"].drop_nulls().value_counts().filter(pl.col("count") >= 300)
    known = sizes["own"].sort().to_list()
    if rng.random() < 0.5 and len(known) >= k:
        part = pictures.filter(pl.col("own").is_in(list(rng.choice(known, k, replace=False))))
        part = part[rng.permutation(len(part))[:n]]
        n, labels = len(part), part["own"].to_numpy()
        names = dict(zip(sorted(set(labels)), CLASSES, strict=False))
        labels = np.array([names[x] for x in labels])
    else:
        part = pictures[rng.permutation(len(pictures))[:n]]
        shares = rng.uniform(1, 2.5, k)
        labels = rng.choice(CLASSES[:k], n, p=shares / shares.sum())
    test = ("train", "test") if rng.integers(2) == 0 else ("train", "val", "test")
    splits = rng.choice(test, n, p=(0.75, 0.25) if len(test) == 2 else (0.7, 0.15, 0.15))
    name = list(NAMES.values())[int(rng.integers(len(NAMES)))]
    dealt = zip(rng.permutation(n), splits, labels, strict=True)
    ids = [f"{split}/{label}/{name(int(i), rng, label)}.jpg" for i, split, label in dealt]
    return part.drop("own").with_columns(
        *_dealt_files(n, rng), sample_id=pl.Series(ids), label=pl.Series(labels),
        split=pl.Series(splits),
    )  # fmt: skip


def _dealt_files(n: int, rng: Rng) -> list[pl.Series]:
    """Return how the files were made, at random: sizes, qualities, cameras, times."""
    sides = np.array([(640, 480), (480, 640), (800, 600), (500, 375)])[rng.integers(0, 4, n)]
    start = datetime(2021, 1, 1)
    dated = rng.random(n) < 0.3
    seconds, camera = rng.integers(0, 10**8, n), rng.integers(0, 4, n)
    times = [start + timedelta(seconds=int(s)) if d else None for s, d in zip(seconds, dated)]  # noqa: B905
    cameras = [f"Camera {c}" if d else None for c, d in zip(camera, dated)]  # noqa: B905
    return [
        pl.Series("width", sides[:, 0], pl.Int32),
        pl.Series("height", sides[:, 1], pl.Int32),
        pl.Series("jpeg_quality", rng.choice([75, 85, 90, 95], n), pl.Int32),
        pl.Series("exif_time", times, pl.Datetime("us")),
        pl.Series("exif_camera", cameras, pl.String),
    ]


@contextlib.contextmanager
def filled(store: Store, dataset: pl.DataFrame, rng: Rng) -> Iterator[None]:
    """Put a dataset and two columns of a manifest into the store until the block ends."""
    n = len(dataset)
    samples = dataset.select(
        "split", "label", id="sample_id", uri=pl.format("/{}", "sample_id"), source=pl.lit(""),
        group_key=pl.lit(None, pl.String), n_bytes=pl.lit(60_000 + rng.integers(0, 20_000, n)),
        mtime_ns=pl.lit(1), ctime_ns=pl.lit(1),
    )  # fmt: skip
    columns = dataset.select(
        "sample_id", site=pl.lit(rng.choice(["north", "south", "east"], n)),
        age=pl.lit(rng.uniform(20, 80, n)),
    )  # fmt: skip
    with store.rolled_back():
        store.append("samples", samples)
        store.append("features", dataset.drop("label", "split"))
        store.create_from("metadata", columns)
        yield


def findings(store: Store) -> list[dict[str, Any]]:
    return [
        {"code": finding.code, "subject": finding.subject, "message": finding.message}
        for check in all_checks().values()
        for finding in check.find(store, make_params(check, {}))
    ]


# ---- effects of stated size ----


def _brighter(dataset: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """One class is 2.5 standard deviations brighter."""
    step = 2.5 * float(dataset["brightness"].std() or 0)  # type: ignore[arg-type]
    here = (pl.col("label") == CLASSES[1]).cast(pl.Float64)
    return dataset.with_columns(pl.col("brightness") + step * here)


def _png(dataset: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """Seven tenths of one class are PNG, a twentieth of the others."""
    draw = pl.Series(rng.random(len(dataset)))
    share = pl.when(pl.col("label") == CLASSES[1]).then(0.7).otherwise(0.05)
    made = pl.when(draw < share).then(pl.lit("PNG")).otherwise("format")
    return dataset.with_columns(format=made)


def _mix(dataset: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """Half of what is not of one class is gone from the test split."""
    gone = pl.Series(rng.random(len(dataset)) < 0.6)
    other = pl.col("label") != CLASSES[1]
    return dataset.filter(~(gone & other & (pl.col("split") == "test")))


def _noisier(dataset: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """Test pictures have twice the noise and are one standard deviation brighter."""
    here = (pl.col("split") == "test").cast(pl.Float64)
    step = float(dataset["brightness"].std() or 0)  # type: ignore[arg-type]
    return dataset.with_columns(pl.col("noise") * (1 + here), pl.col("brightness") + step * here)


def _clip(dataset: pl.DataFrame, rng: Rng) -> pl.DataFrame:
    """Ten stills of one film, half as different as pictures of a class are, in two splits."""
    rows = dataset.filter(pl.col("label") == CLASSES[0]).head(10)
    look = [c for c in FLOATS if c in rows.columns]
    seen = rows[0].select(look).row(0)
    bits = np.frombuffer(bytes.fromhex(rows["phash256"][0]), np.uint8)
    flips = np.packbits(rng.random((len(rows), 256)) < 0.25, axis=1)
    spread = dataset.select(pl.col(look).std()).row(0)
    stills = rows.with_columns(
        *(
            pl.Series(c, value + 0.25 * (s or 0) * rng.standard_normal(len(rows)))
            for c, value, s in zip(look, seen, spread, strict=True)
        ),
        pl.Series("phash256", [(bits ^ f).tobytes().hex() for f in flips]),
        pl.Series("split", [("train", "test")[i > 5] for i in range(len(rows))]),
        pl.Series("sample_id", [f"film7_{i:03d}.jpg" for i in range(len(rows))]),
    )
    return pl.concat([dataset.join(rows.select("sample_id"), on="sample_id", how="anti"), stills])


FLOATS = (
    "brightness", "brightness_p5", "brightness_p50", "brightness_p95", "contrast", "saturation",
    "red", "green", "blue", "edge_density", "entropy", "noise",
)  # fmt: skip
PLANTED: Mapping[str, Callable[[pl.DataFrame, Rng], pl.DataFrame]] = {
    "DIST004 a class 2.5 deviations brighter": _brighter,
    "DIST004 70 % of a class is PNG, 5 % of others": _png,
    "DIST006 60 % of other classes gone from test": _mix,
    "DIST007 test noise doubled, 1 deviation brighter": _noisier,
    "SPLIT002 ten stills, a quarter as different as the class": _clip,
}


# ---- right labels over drawn vectors ----


def right_labels(kind: str, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors (n, d) and their labels, none of them wrong."""
    k = int(rng.choice([2, 3, 5, 10, 20]))
    n = max(int(np.exp(rng.uniform(np.log(100), np.log(3000)))), 15 * k)
    d, freedom = int(rng.choice([5, 20, 60])), float(rng.choice([3, 4, 6]))
    # deviations between centres: from half hidden in each other to far apart
    apart = float(np.exp(rng.uniform(*np.log((12, 40) if kind == "lying apart" else (1, 12)))))
    shares = rng.dirichlet(np.full(k, 3.0)) if rng.random() < 0.5 else np.full(k, 1 / k)
    shares = np.maximum(shares, 15 / n)
    labels = rng.choice(k, n, p=shares / shares.sum())
    parts = 4 if kind == "clusters" else 1
    centres = rng.normal(size=(k * parts, d)) * apart / np.sqrt(d)
    noise = rng.normal(size=(n, d))
    if kind == "Student rows":
        noise /= np.sqrt(rng.chisquare(freedom, size=(n, 1)) / freedom)
    elif kind == "Student columns":
        noise = rng.standard_t(freedom, size=(n, d))
    elif kind == "unlike spreads":
        noise *= np.exp(0.5 * rng.normal(size=k))[labels][:, None]
    points = centres[labels * parts + rng.integers(parts, size=n)] + noise
    if kind == "skewed":
        points = np.exp(0.5 * points)
    known = np.bincount(labels, minlength=k)[labels] >= 10  # as for a scan
    labels = np.unique(labels[known], return_inverse=True)[1]
    return scale_columns(points[known].astype(np.float32)), labels


RIGHT = ("normal", "Student rows", "Student columns", "skewed", "clusters", "unlike spreads",
         "lying apart")  # fmt: skip


def judge_right_labels(kind: str, seed: int, number: int) -> list[dict[str, Any]]:
    """Return the labels that LABEL006 would report at its defaults, of drawn vectors."""
    rng = np.random.default_rng([seed, 100 + RIGHT.index(kind), number])
    points, labels = right_labels(kind, rng)
    own = np.arange(len(labels))
    near = nearest_rows(compare_axes(decompose(points)), own)
    judged = judge_vectors(points[None], near, labels, own, labels.max() + 1)
    params = SuspectLabel.Params()
    least = min(params.min_chance, 1 - params.max_false)  # of the most doubtful
    rows = np.flatnonzero(judged.error_chance >= least)
    if judged.gain < params.min_gain:
        return []
    return [{"code": SuspectLabel.code, "subject": str(row), "message": ""} for row in rows]


# ---- the run ----

NULL = "null datasets"


def judge(
    store: Store, pictures: pl.DataFrame | None, name: str, number: int, seed: int
) -> list[dict[str, Any]]:
    """Return the findings in dataset `number` of a set; right labels need no pictures."""
    if name.removeprefix("right labels, ") in RIGHT:
        return judge_right_labels(name.removeprefix("right labels, "), seed, number)
    assert pictures is not None
    place = 0 if name == NULL else 1 + list(PLANTED).index(name)
    rng = np.random.default_rng([seed, place, number])
    dataset = null_dataset(pictures, rng)
    if name != NULL:
        dataset = PLANTED[name](dataset, rng)
    with filled(store, dataset, np.random.default_rng([seed, number])):
        return findings(store)


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Print and return, by set, how many datasets have a finding, and of which checks."""
    found: dict[str, Any] = {}
    for name in sorted({line["set"] for line in lines}):
        codes = [{f["code"] for f in line["found"]} for line in lines if line["set"] == name]
        wanted = name.split()[0] if name in PLANTED else ""
        hits = sum(bool(c) if not wanted else wanted in c for c in codes)
        low, high = (round(float(x), 4) for x in wilson(hits, len(codes)))
        by_check = dict(Counter(code for some in codes for code in sorted(some)))
        seconds = [line["cpu_s"] for line in lines if line["set"] == name]
        found[name] = {
            "datasets": len(codes), "reported": hits, "interval": [low, high],
            "by_check": by_check, "cpu_s_per_dataset": round(float(np.mean(seconds)), 2),
        }  # fmt: skip
        print(f"{hits} of {len(codes)} ({low:.1%} to {high:.1%}): {name} {by_check}", flush=True)
    return found


@measures(app)
def false_alarms(
    folders: Annotated[list[str] | None, typer.Argument()] = None,
    datasets: int = 500,
    planted: int = 40,
    labels: int = 100,
    results: Path | None = None,
    pictures: Path | None = None,
    shard: str = "0/1",
    jobs: int = 2,
    seed: int = 1,
) -> Document:
    """Judge right labels; with FOLDERS, null datasets and PLANTED datasets for each effect.

    LABELS is the sets of each kind of vectors; PICTURES keeps the scan (.parquet).
    """
    sets = {f"right labels, {kind}": labels for kind in RIGHT}
    drawn_from = None
    if folders or pictures:
        drawn_from = silent_pictures(folders or [], pictures, jobs)
        print(f"{len(drawn_from):,} pictures without a finding", flush=True)
        sets |= {NULL: datasets} | dict.fromkeys(PLANTED, planted)
    lines = saved_rows(results)
    done = {(line["set"], line["number"]) for line in lines}
    store = Store.memory()
    store.create_measurements(FEATURE_ROW)
    for name, n in sets.items():
        for number in shard_of(range(n), shard):
            if (name, number) not in done:
                began = time.process_time()
                found = judge(store, drawn_from, name, number, seed)
                seconds = time.process_time() - began
                lines.append({"set": name, "number": number, "cpu_s": seconds, "found": found})
                save_row(results, lines[-1])
    # another shard may have written to the same file meanwhile
    return summary(saved_rows(results) or lines)


if __name__ == "__main__":
    app()
