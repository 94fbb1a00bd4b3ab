"""Classes of objects: what is found of planted faults, of nothing, at what cost.

    python benchmarks/object_classes.py planted | nulls | scale

Drawn worlds: pictures hold classes that like or avoid each other, some of them many objects; sizes
depend on the class and on the picture, and each picture is of one of three cameras. The null is a
random split of such a world, or of the real annotated raccoons (one class, 200 pictures). Findings
counted are all of the checks of classes; none of them should be there.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from bench import Document, hall, measures, real_data, run_command

from audit.checking.check import all_checks, make_params
from audit.picture.features import FEATURE_ROW
from audit.run.generations import open_run
from audit.run.store import Store
from audit.run.tables import OTHER_TABLES, SAMPLES
from audit.testing import HEALTHY, Case, case_store

app = hall(__doc__)
CHECKS = (
    "DIST001", "DIST002", "DIST003", "DIST006", "DIST007", "DIST008", "DIST009", "DIST010",
    "DIST011", "LABEL001", "LABEL002", "LABEL003", "LABEL004",
)  # fmt: skip
SPLITS = {"train": 0.7, "val": 0.15, "test": 0.15}
Row = dict[str, Any]


class World:
    """A drawn dataset: `held` has a row a picture and class, `pictures` a row a picture."""

    def __init__(self, rng: np.random.Generator, n: int, classes: int) -> None:
        share = rng.uniform(0.15, 0.45, classes)
        leaning, scene = rng.normal(size=(classes, 3)) * 0.8, rng.normal(size=(n, 3))
        odds = np.log(share / (1 - share)) + scene @ leaning.T
        there = rng.random((n, classes)) < 1 / (1 + np.exp(-odds))
        there[rng.random(n) < 0.05] = False
        picture, label = there.nonzero()
        size = rng.normal(6, 1, classes)[label] + rng.normal(size=n)[picture] * 0.5
        self.held = pl.DataFrame(
            {
                "picture": picture, "label": [f"class {k:02d}" for k in label],
                "n": 1 + rng.poisson(rng.gamma(1, 1.5, len(label))), "side": size,
                "aspect": rng.normal(size=len(label)) * 0.4,
                "x": rng.beta(2, 2, len(label)), "y": rng.beta(2, 2, len(label)),
            }
        )  # fmt: skip
        self.pictures = pl.DataFrame(
            {
                "split": rng.choice(list(SPLITS), n, p=list(SPLITS.values())),
                "camera": rng.choice(["A", "B", "C"], n), "brightness": rng.uniform(0.2, 0.7, n),
            }
        )  # fmt: skip

    def case(self) -> Case:
        """Return it as a dataset in memory."""
        rows = self.pictures.rows(named=True)
        images = [
            {
                "id": f"{i:05d}.jpg", "label": None, "split": row["split"],
                "exif_camera": row["camera"], "brightness": row["brightness"],
                "group_key": row.get("group"),
            }
            for i, row in enumerate(rows)
        ]  # fmt: skip
        return Case("drawn", images, tables={"object_labels": self.labels().to_dicts()})

    def labels(self) -> pl.DataFrame:
        """Return the rows of `object_labels`."""
        name = pl.format("{}.jpg", pl.col("picture").cast(pl.String).str.zfill(5))
        return self.held.select(
            name.alias("sample_id"), "label", pl.lit("box").alias("kind"), "n", "side", "aspect",
            "x", "y",
        )  # fmt: skip


def found(store: Store, codes: tuple[str, ...] = CHECKS) -> list[tuple[str, str]]:
    """Return code and subject of every finding."""
    checks = [all_checks()[code] for code in codes]
    return [
        (check.code, finding.subject)
        for check in checks
        for finding in check.find(store, make_params(check, {}))
        if (check.code, finding.subject) != ("LABEL001", "dataset")  # objects alone, by design
    ]


def judged(case: Case, codes: tuple[str, ...] = CHECKS) -> list[tuple[str, str]]:
    with case_store(case) as store:
        return found(store, codes)


@measures(app)
def nulls(sets: int = 100, first: int = 0, data: Path | None = None) -> Document:
    """Findings in random splits of drawn worlds and of the real raccoons; `first`: its seed."""
    document: Document = {}
    drawn, said = 0, list[str]()
    for seed in range(first, first + sets):
        rng = np.random.default_rng(seed)
        got = judged(World(rng, int(rng.integers(200, 1200)), int(rng.integers(2, 20))).case())
        drawn += bool(got)
        said += [f"{seed}: {code} {subject}" for code, subject in got]
    document["drawn"] = {"sets": sets, "with_findings": drawn, "findings": said}
    print(document["drawn"], flush=True)
    raccoon = real_case(real_data(data, "raccoon") / "raccoon")
    real, said = 0, []
    for seed in range(first, first + sets):
        rng = np.random.default_rng(seed)
        images = [
            {**image, "split": str(rng.choice(list(SPLITS), p=list(SPLITS.values())))}
            for image in raccoon.images
        ]
        got = judged(Case("raccoon", images, tables=raccoon.tables))
        real += bool(got)
        said += [f"{seed}: {code} {subject}" for code, subject in got]
    document["raccoon"] = {"sets": sets, "with_findings": real, "findings": said}
    return document


def real_case(folder: Path) -> Case:
    """Return a scanned dataset as one in memory."""
    with tempfile.TemporaryDirectory() as place:
        run_command(["scan", folder, "--out", f"{place}/run", "--fail-on", "never"])
        with open_run(Path(place) / "run") as store:
            known = {column.name for column in (*SAMPLES, *FEATURE_ROW)}
            images = [
                {key: value for key, value in row.items() if key in known}
                for row in store.rows("FROM images ORDER BY id")
            ]
            tables = {
                name: store.rows(f"FROM {name}")
                for name in ("object_labels", "groups", "box_images")
            }
    return Case(folder.name, images, tables=tables)


# ---- planted faults ----


def absent(world: World, name: str = "class 01") -> tuple[str, str]:
    val = world.pictures.with_row_index("picture").filter(pl.col("split") == "val")["picture"]
    gone = (pl.col("label") == name) & pl.col("picture").is_in(val.implode())
    world.held = world.held.filter(~gone)
    return "DIST003", f"object:split:val/class:{name}"


def rare(world: World) -> tuple[str, str]:
    mine = world.held.filter(pl.col("label") == "class 01").head(5)
    world.held = pl.concat([world.held.filter(pl.col("label") != "class 01"), mine])
    return "DIST002", "object:class:class 01"


def drifted_share(world: World, name: str = "class 01") -> tuple[str, str]:
    val = world.pictures.with_row_index("picture").filter(pl.col("split") == "val")["picture"]
    more = (pl.col("label") == name) & pl.col("picture").is_in(val.implode())
    n = pl.when(more).then(pl.col("n") * 8).otherwise(pl.col("n"))
    world.held = world.held.with_columns(n.alias("n"))
    return "DIST006", "object:split:val"


def drifted_size(world: World) -> tuple[str, str]:
    val = world.pictures.with_row_index("picture").filter(pl.col("split") == "val")["picture"]
    far = (pl.col("label") == "class 01") & pl.col("picture").is_in(val.implode())
    side = pl.when(far).then(pl.col("side") - 1.5).otherwise(pl.col("side"))
    world.held = world.held.with_columns(side.alias("side"))
    return "DIST007", "object:split:val"


def one_camera(world: World) -> tuple[str, str]:
    others = world.pictures.with_row_index("picture").filter(pl.col("camera") != "A")["picture"]
    gone = (pl.col("label") == "class 01") & pl.col("picture").is_in(others.implode())
    world.held = world.held.filter(~gone)
    return "DIST009", "object:dataset/attribute:camera"


def torn_group(world: World) -> tuple[str, str]:
    number = np.arange(world.pictures.height)
    group = pl.Series("group", [f"group {i // 10}" for i in number])
    tidy = pl.col("split").first().over("group")
    world.pictures = world.pictures.with_columns(group).with_columns(tidy.alias("split"))
    torn = pl.when(pl.Series(number == 11)).then(pl.lit("val")).otherwise("split")
    torn = pl.when(pl.Series(number == 12)).then(pl.lit("train")).otherwise(torn)
    world.pictures = world.pictures.with_columns(torn.alias("split"))
    return "SPLIT002", "group:"


def without_objects(world: World) -> tuple[str, str]:
    val = world.pictures.with_row_index("picture").filter(pl.col("split") == "val")["picture"]
    world.held = world.held.filter(~pl.col("picture").is_in(val.head(len(val) // 2).implode()))
    return "DIST011", "object:split:val"


def company(world: World) -> tuple[str, str]:
    val = world.pictures.with_row_index("picture").filter(pl.col("split") == "val")["picture"]
    frequent = world.held["label"].value_counts().sort("count", "label")["label"].to_list()
    pair = world.held.filter(pl.col("label") == frequent[-1])["picture"]
    apart = (pl.col("label") == frequent[-2]) & pl.col("picture").is_in(val.implode())
    apart &= pl.col("picture").is_in(pair.implode())
    world.held = world.held.filter(~apart)
    return "DIST010", "object:split:val"


PLANTS = (
    absent, rare, drifted_share, drifted_size, one_camera, torn_group, without_objects, company,
)  # fmt: skip


@measures(app)
def planted(sets: int = 20, pictures: int = 1000) -> tuple[Document, bool]:
    """Each fault alone in drawn worlds: in how many of them is it found?"""
    document: Document = {}
    for plant in PLANTS:
        hits, others = 0, list[str]()
        for seed in range(sets):
            world = World(np.random.default_rng(seed), pictures, 8)
            wanted = plant(world)
            got = judged(world.case(), (*CHECKS, "SPLIT002"))
            hit = any(c == wanted[0] and s.startswith(wanted[1]) for c, s in got)
            hits += hit
            others += [f"{c} {s}" for c, s in got if c != wanted[0]]
        document[plant.__name__] = {"found": hits, "of": sets, "others": sorted(set(others))}
        print(plant.__name__, document[plant.__name__], flush=True)
    return document, all(row["found"] == sets for row in document.values())


@measures(app)
def scale(pictures: int = 200_000, boxes: int = 1_000_000, classes: int = 80) -> Document:
    """CPU seconds of each check of classes over that many boxes."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, classes + 1) ** 0.6
    label = rng.choice(classes, boxes, p=share / share.sum())
    unit = np.sort(rng.integers(0, pictures, boxes))
    frame = pl.DataFrame(
        {
            "sample_id": unit, "label": label, "side": rng.normal(6, 1, boxes),
            "aspect": rng.normal(size=boxes), "x": rng.random(boxes), "y": rng.random(boxes),
        }
    )  # fmt: skip
    held = frame.group_by("sample_id", "label", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("n"), pl.col("side", "aspect", "x", "y").mean()
    )
    name = pl.format("{}.jpg", pl.col("sample_id").cast(pl.String).str.zfill(6))
    held = held.with_columns(
        name, pl.format("class {}", "label").alias("label"), kind=pl.lit("box")
    )
    ids = [f"{i:06d}.jpg" for i in range(pictures)]
    split = rng.choice(list(SPLITS), pictures, p=list(SPLITS.values()))
    rows = pl.DataFrame({"id": ids, "split": split, "uri": ids, "source": ""})
    measured = {c.name: HEALTHY[c.name] for c in FEATURE_ROW if HEALTHY.get(c.name) is not None}
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        store.append("samples", rows)
        features = rows.select(pl.col("id").alias("sample_id"), *(
            pl.lit(value).alias(key) for key, value in measured.items()
        ))  # fmt: skip
        features = features.with_columns(
            pl.Series("brightness", rng.uniform(0.2, 0.7, pictures)),
            pl.Series("exif_camera", rng.choice(["A", "B", "C"], pictures)),
            pl.col("sample_id").alias("content_hash"), pl.col("sample_id").alias("pixel_hash"),
        )  # fmt: skip
        store.append("features", features)
        known = {c.name for c in OTHER_TABLES["object_labels"]}
        store.append("object_labels", held.select(*known & set(held.columns)))
        seconds = {}
        all_checks()  # every scan loads them once, whatever it looks at
        for code in CHECKS:
            start = time.process_time()
            found(store, (code,))
            seconds[code] = round(time.process_time() - start, 2)
        print(seconds, flush=True)
    alone = {c: s for c, s in seconds.items() if c != "DIST007"}
    return {
        "pictures": pictures, "boxes": boxes, "rows": held.height, "cpu_s": seconds,
        "all_cpu_s": round(sum(seconds.values()), 2),
        "without_properties_of_pictures_cpu_s": round(sum(alone.values()), 2),
    }  # fmt: skip


if __name__ == "__main__":
    app()
