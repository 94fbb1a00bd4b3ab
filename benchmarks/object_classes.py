"""Classes of objects: what is found of planted faults, of nothing, by each format, at what cost.

    python benchmarks/object_classes.py planted | nulls | formats | scale

Drawn worlds: pictures hold classes that like or avoid each other, some of them many objects; sizes
depend on the class and on the picture, and each picture is of one of three cameras. The null is a
random split of such a world, or of the real annotated raccoons (one class, 200 pictures). Findings
counted are all of the checks of classes; none of them should be there.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from bench import Document, hall, measures, real_data, run_command

from audit.checking.cases import HEALTHY, Case, case_store
from audit.checking.check import all_checks, make_params
from audit.picture.features import FEATURE_ROW
from audit.run.generations import open_run
from audit.run.store import Store
from audit.run.tables import OTHER_TABLES, SAMPLES

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


# ---- one set in four formats ----


def boxes_of(world: World, rng: np.random.Generator) -> Iterator[tuple[int, int, list[float]]]:
    """Yield picture, class and corners of every box of a world, in px of 640 x 480."""
    for picture, label, n in world.held.select("picture", "label", "n").iter_rows():
        for _ in range(n):
            w, h = rng.integers(8, 200, 2).tolist()
            x, y = int(rng.integers(0, 640 - w)), int(rng.integers(0, 480 - h))
            yield picture, int(label[-2:]), [x, y, x + w, y + h]


def write_format(root: Path, form: str, world: World, boxes: list[Any], names: list[str]) -> Path:
    """Write the dataset with hard links to one picture, and return what is scanned."""
    from PIL import Image

    (root / "images").mkdir(parents=True)
    blank = root.parent / "blank.jpg"
    Image.new("RGB", (640, 480), (90, 120, 90)).save(blank)
    files = [f"{s}/{i:05d}.jpg" for i, s in enumerate(world.pictures["split"])]
    for name in files:
        (root / "images" / name).parent.mkdir(exist_ok=True)
        (root / "images" / name).hardlink_to(blank)
    by_picture: dict[int, list[Any]] = {i: [] for i in range(len(files))}
    for picture, k, box in boxes:
        by_picture[picture].append((k, box))
    if form == "COCO":
        (root / "annotations").mkdir()
        for split in SPLITS:
            mine = [i for i, name in enumerate(files) if name.startswith(split)]
            document = {
                "images": [
                    {"id": i, "file_name": files[i].partition("/")[2], "width": 640, "height": 480}
                    for i in mine
                ],
                "annotations": [
                    {
                        "id": 1000 * i + j, "image_id": i, "category_id": k, "iscrowd": 0,
                        "bbox": [b[0], b[1], b[2] - b[0], b[3] - b[1]],
                    }
                    for i in mine for j, (k, b) in enumerate(by_picture[i])
                ],
                "categories": [{"id": k, "name": name} for k, name in enumerate(names)],
            }  # fmt: skip
            (root / f"annotations/instances_{split}.json").write_text(json.dumps(document))
    elif form == "YOLO":
        (root / "data.yaml").write_text(
            "train: images/train\nval: images/val\ntest: images/test\nnames: " + json.dumps(names)
        )
        for i, name in enumerate(files):
            path = root / "labels" / name.replace(".jpg", ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [
                f"{k} {(b[0] + b[2]) / 1280:.8f} {(b[1] + b[3]) / 960:.8f} "
                f"{(b[2] - b[0]) / 640:.8f} {(b[3] - b[1]) / 480:.8f}"
                for k, b in by_picture[i]
            ]
            path.write_text("\n".join(lines))
    elif form == "VOC":
        for i, name in enumerate(files):
            path = root / "annotations" / name.replace(".jpg", ".xml")
            path.parent.mkdir(parents=True, exist_ok=True)
            objects = "".join(
                f"<object><name>{names[k]}</name><bndbox><xmin>{b[0]}</xmin><ymin>{b[1]}</ymin>"
                f"<xmax>{b[2]}</xmax><ymax>{b[3]}</ymax></bndbox></object>"
                for k, b in by_picture[i]
            )
            path.write_text(
                f"<annotation><filename>{name.partition('/')[2]}</filename><size><width>640</width>"
                f"<height>480</height><depth>3</depth></size>{objects}</annotation>"
            )
    else:
        rows = ["path,split,xmin,ymin,xmax,ymax,class"]
        for i, name in enumerate(files):
            where = f"images/{name},{name.partition('/')[0]}"
            rows += [f"{where},{','.join(map(str, b))},{names[k]}" for k, b in by_picture[i]]
            rows += [] if by_picture[i] else [f"{where},,,,,"]
        (root / "boxes.csv").write_text("\n".join(rows) + "\n")
        return root / "boxes.csv"
    return root


@measures(app)
def formats(pictures: int = 5000, classes: int = 12) -> tuple[Document, bool]:
    """The same drawn set as COCO, YOLO, VOC and CSV: the same findings about classes?"""
    from audit.annotations import measure_boxes
    from audit.sources import open_source
    from tests.audit.annotations.datasets import fill

    world = World(np.random.default_rng(3), pictures, classes)
    absent(world)
    drifted_share(world, "class 02")
    names = [f"class {k:02d}" for k in range(classes)]
    boxes = list(boxes_of(world, np.random.default_rng(4)))
    document: Document = {"boxes": len(boxes)}
    kept: dict[str, Mapping[tuple[str, str], str]] = {}
    for form in ("COCO", "YOLO", "VOC", "CSV"):
        with tempfile.TemporaryDirectory() as place, Store.memory() as store:
            source = write_format(Path(place) / "set", form, world, boxes, names)
            fill(store, open_source([str(source)]))
            measure_boxes(store)
            kept[form] = {
                (check.code, finding.subject): finding.message
                for check in (all_checks()[c] for c in CHECKS if c not in ("DIST008", "DIST009"))
                for finding in check.find(store, make_params(check, {}))
                if finding.subject.startswith("object:")
            }
            document[form] = [" ".join(key) for key in sorted(kept[form])]
            print(form, document[form], flush=True)
    same = all(found == kept["COCO"] for found in kept.values())
    return document | {"same": same}, same


# ---- what it costs ----


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
