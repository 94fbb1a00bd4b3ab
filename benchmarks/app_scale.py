"""How quick the app and the commands are on 1,000,000 rows and 100,000 findings, and their memory.

A synthetic run is written with the real schema and the real store, the real app is started on it,
and headless Chromium uses it as a person would: from the click to the moment the page says that it
is done. Server memory is the peak resident set of the app's process. The rows carry no pictures:
drawing 24 thumbnails that are on disk already is measured by the browser tests' sample data.

    python benchmarks/app_scale.py app --rows 1000000 --findings 100000 --repeats 7
    python benchmarks/app_scale.py app --rows 200000 --boxes 2000000 --run runs/app_boxes
    python benchmarks/app_scale.py commands --rows 200000 --findings 100000

With boxes, a tenth of them with an outline, their view of the page Labels is used as well.
Targets: page switch and filter below 0.5 s at the median, next page and a decision below 0.2 s,
memory below 1 GB. Making the run takes about 20 s and 700 MB of disk; it is kept under --run and
used again.

`commands`: reports, a diff and an export. A second run is written that lacks a twentieth of the
findings. Each command is a process of its own, started as a person would; its CPU time holds that
of the processes it started, its memory is the peak resident set of the command itself. Targets on 2
cores: each below 30 s and 2 GB.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from bench import Document, hall, measures, run_apart, run_command

from audit.annotations import measure_boxes
from audit.picture.features import FEATURE_ROW, MEASURED
from audit.run.run_version import MEASUREMENTS, building_folder, publish, remove_version
from audit.run.store import Store
from audit.run.tables import SCHEMA_VERSION

app = hall(__doc__)
SPLITS = ("train", "train", "train", "train", "val", "test")
CODES = (
    ("IMG003", "blurry-image", "warning"),
    ("IMG001", "dark-image", "warning"),
    ("FILE002", "damaged-file", "error"),
    ("DUP003", "near-duplicate", "warning"),
    ("LABEL005", "conflicting-label", "error"),
    ("IMG008", "statistical-outlier", "info"),
)


def make_run(run: Path, rows: int, findings: int, boxes: int = 0, classes: int = 200) -> None:
    """Write a published run of the real schema: random features, a few findings a code."""
    shutil.rmtree(run, ignore_errors=True)
    draw = np.random.default_rng(7)
    ids = _ids(draw, rows, classes)
    with Store.create(building_folder(run) / MEASUREMENTS) as store:
        store.create_measurements(FEATURE_ROW)
        store.append("samples", _samples(ids))
        store.append("features", _features(draw, ids))
        store.set_meta(
            {
                "schema_version": str(SCHEMA_VERSION), "dataset": "synthetic", "roots": "{}",
                "layout": "split/class/file", "layout_reason": "made by benchmarks/app_scale.py",
                "created": "2026-01-01T00:00:00+00:00", "tool": "dataset-preflight",
            }
        )  # fmt: skip
        store.append("relate_facts", [{"key": "threshold", "value": "0.0"}])
        if boxes:
            _add_boxes(store, draw, boxes)
        store.checkpoint()
    with Store.create(building_folder(run) / "findings-0001.duckdb") as store:
        store.create_findings()
        heads, members = _findings(draw, ids["id"].to_list(), findings)
        store.append("findings", heads)
        store.append("finding_samples", members)
        store.append("check_runs", _check_runs(heads))
        store.checkpoint()
    publish(run, "findings-0001.duckdb")
    remove_version(run / "building")


def _ids(draw: np.random.Generator, rows: int, classes: int) -> pl.DataFrame:
    split = np.asarray(SPLITS, object)[draw.integers(0, len(SPLITS), rows)]
    label = np.char.add("class-", np.char.zfill(draw.integers(0, classes, rows).astype(str), 3))
    frame = pl.DataFrame({"split": pl.Series(split.tolist()), "label": label, "n": np.arange(rows)})
    name = pl.format("{}/{}/{}.jpg", "split", "label", pl.col("n").cast(pl.String).str.zfill(8))
    return frame.with_columns(id=name)


def _samples(ids: pl.DataFrame) -> pl.DataFrame:
    return ids.select(
        "id",
        pl.format("/nowhere/{}", "id").alias("uri"),
        pl.lit("").alias("source"),
        "split",
        "label",
        (pl.col("n") * 7919 % 400_000 + 4_000).alias("n_bytes"),
        pl.lit(1_700_000_000_000_000_000).alias("mtime_ns"),
        pl.lit(1_700_000_000_000_000_000).alias("ctime_ns"),
    )


def _features(draw: np.random.Generator, ids: pl.DataFrame) -> pl.DataFrame:
    n = ids.height
    hashes = ids["n"].hash(3).cast(pl.String).str.zfill(20)
    columns: dict[str, object] = {
        "sample_id": ids["id"], "file_key": hashes, "content_hash": hashes, "pixel_hash": hashes,
        "status": pl.Series(np.where(draw.random(n) < 0.999, "ok", "damaged").tolist()),
        "format": pl.Series(["JPEG"] * n), "extension": pl.Series(["jpg"] * n),
        "mode": pl.Series(["RGB"] * n), "width": draw.integers(200, 4000, n).astype(np.int32),
        "height": draw.integers(200, 4000, n).astype(np.int32), "phash": ids["n"].hash(5),
    }  # fmt: skip
    for column in MEASURED:
        if column.name not in columns and column.type == "DOUBLE":
            columns[column.name] = draw.beta(2, 5, n)
    return pl.DataFrame(columns).sample(fraction=1.0, shuffle=True, seed=5)  # order of completion


def _add_boxes(store: Store, draw: np.random.Generator, n: int) -> None:
    """Append one COCO file of 80 classes; every tenth box has an outline of 20 points."""
    sizes = store.query("SELECT sample_id, width AS w, height AS h FROM features ORDER BY 1")
    owner = np.sort(draw.integers(0, sizes.height, n))
    near = sizes[owner.tolist()]
    wide, tall = draw.uniform(0.02, 0.4, (2, n))
    file = {"file": "boxes.json", "format": "COCO", "n_files": 1, "pictures": sizes.height,
            "matched": sizes.height, "objects": n, "classes": 80, "complete": True,
            "form": "xywh px", "reading": "xywh px", "frame": "displayed",
            "not_read": ""}  # fmt: skip
    store.append("annotation_files", [file])
    kind = draw.integers(0, 80, n)
    boxes = near.select(
        "sample_id", image_key="sample_id", file=pl.lit("boxes.json"), entry=pl.int_range(pl.len()),
        kind=pl.lit("box"), width=pl.col("w") * wide, height=pl.col("h") * tall,
        x=pl.col("w") * (1 - wide) * draw.random(n), y=pl.col("h") * (1 - tall) * draw.random(n),
        picture_width="w", picture_height="h", other_unit=pl.lit(False), crowd=pl.lit(False),
    ).with_columns(
        label=pl.format("class {}", pl.Series(kind)), category_key=pl.Series(kind).cast(pl.String)
    )  # fmt: skip
    store.append("boxes", boxes)
    outlined = boxes[::10]
    x, y, w, h = (outlined[name].to_numpy()[:, None] for name in ("x", "y", "width", "height"))
    around = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    ring = np.stack([x + w / 2 * (1 + np.cos(around)), y + h / 2 * (1 + np.sin(around))], 2)
    points = pl.Series("points", ring.reshape(len(ring), 40)).cast(pl.List(pl.Float64))
    store.append(
        "annotation_shapes",
        outlined.select("file", "image_key", "entry", kind=pl.lit("polygon"), part=pl.lit(0),
                        n_points=pl.lit(20)).with_columns(points),
    )  # fmt: skip
    listed = sizes.select("sample_id", file=pl.lit("boxes.json"), image_key="sample_id")
    store.append("annotated_images", listed)
    measure_boxes(store)


def _findings(
    draw: np.random.Generator, ids: list[str], n: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    kind = draw.integers(0, len(CODES), n)
    first = draw.integers(0, len(ids), n)
    prints = [f"{i:016x}" for i in range(n)]
    codes = pl.DataFrame(CODES, ["code", "name", "severity"], orient="row")[kind]
    heads = codes.select(
        pl.Series("fingerprint", prints),
        "code", "name", "severity",
        subject=pl.format("{}@{}", pl.Series(ids).gather(first), pl.Series(prints)),
        message=pl.format("This file stands out by {}.", pl.Series(draw.random(n).round(3))),
        evidence=pl.lit('{"sharpness": 0.11, "threshold": 0.2}'),
        action=pl.lit("review"),
        n_samples=pl.Series(np.where(kind == 3, 3, 1)),
    )  # fmt: skip
    members = pl.DataFrame({"fingerprint": prints, "first": first, "n": heads["n_samples"]})
    members = members.with_columns(position=pl.int_ranges(0, "n")).explode("position")
    row = (members["first"] + members["position"] * 31) % len(ids)
    members = members.with_columns(sample_id=pl.Series(ids).gather(row))
    return heads, members.select("fingerprint", "sample_id", "position")


def _check_runs(heads: pl.DataFrame) -> list[dict[str, object]]:
    counts = dict(heads["code"].value_counts().iter_rows())
    return [
        {
            "code": code, "name": name, "severity": severity, "n_findings": counts.get(code, 0),
            "seconds": 0.1, "completeness": "", "params": "{}",
        }
        for code, name, severity in CODES
    ]  # fmt: skip


# ---- the visit ----


def visit(run: Path, repeats: int, boxes: bool) -> dict[str, object]:
    """Start the app on the run, use it in Chromium, return seconds by action and memory in MB."""
    from playwright.sync_api import sync_playwright

    from tests.browser.app import FLAGS, Visitor, chromium, served

    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), run.resolve()) as links,
        sync_playwright() as playwright,
    ):
        path = chromium(playwright)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        visitor = Visitor(tab, links[0])
        times = _use(visitor.page, visitor.address, repeats, boxes)
        return {"seconds": times, "peak_memory_mb": _peak_mb(visitor.address.rpartition(":")[2])}


def _use(tab: Any, address: str, repeats: int, boxes: bool) -> dict[str, dict[str, object]]:
    """Time each action: `first` is the one that fills caches, `median` of those after it."""
    tab.add_init_script(COUNTING)
    tab.goto(address)
    tab.get_by_role("heading", level=1, name="Overview", exact=True).wait_for()
    tab.wait_for_function(f"{ENDED} > 0")
    seconds: dict[str, list[float]] = {}
    for _ in range(repeats + 1):
        for title in ("Findings", "Explore", "Duplicates", "Labels", "Overview"):
            _timed(seconds, f"page switch: {title}", partial(_switch, tab, title))
        _switch(tab, "Findings")
        for choice in ("FILE002", "IMG003"):
            act = partial(_choose, tab, "Check", choice)
            _timed(seconds, "filter: findings by check", act)
        _timed(seconds, "open folded findings", partial(_then, tab, tab.locator(FIRST_LINE).click))
        _timed(seconds, "next page: findings", partial(_press, tab, "PageDown"))
        _timed(seconds, "next finding", partial(_press, tab, "n"))
        _timed(seconds, "decision by key, recorded", partial(_press, tab, "k"))
        _switch(tab, "Explore")
        for choice in ("sharpness", "contrast"):
            _timed(seconds, "sort: images", partial(_choose, tab, "Sort by", choice))
        for _ in range(3):
            _timed(seconds, "next page: images", partial(_press, tab, "PageDown"))
        _timed(seconds, "filter: images by class", partial(_filter_class, tab))
        # the page remembers its filters, and the next round begins without
        _then(tab, tab.get_by_role("button", name="Clear the filters").click)
        if boxes:
            _use_boxes(tab, seconds)
    return {
        name: {"first": round(values[0], 3), "median": round(statistics.median(values[1:]), 3),
               "n": len(values) - 1}
        for name, values in seconds.items()
    }  # fmt: skip


def _use_boxes(tab: Any, seconds: dict[str, list[float]]) -> None:
    _switch(tab, "Labels")
    view = tab.get_by_role("radio", name="Boxes", exact=True)
    _timed(seconds, "labels: view of boxes", partial(_then, tab, view.click))
    for choice in ("class 7", "class 33"):
        _timed(seconds, "boxes: filter by class", partial(_choose, tab, "Class", choice))
    for choice in ("small", "medium"):
        _timed(seconds, "boxes: filter by size", partial(_choose, tab, "Size", choice))
    for _ in range(2):
        _timed(seconds, "boxes: next page", partial(_press, tab, "PageDown"))
    for label in ("Class", "Size"):
        _choose(tab, label, "Any")
    _then(tab, tab.get_by_role("radio", name="Classes", exact=True).click)


def _timed(seconds: dict[str, list[float]], name: str, act: Callable[[], None]) -> None:
    began = time.perf_counter()
    act()
    seconds.setdefault(name, []).append(time.perf_counter() - began)
    print(f"{name}: {seconds[name][-1]:.3f} s", file=sys.stderr)


def _switch(tab: Any, title: str) -> None:
    before = tab.evaluate(ENDED)
    tab.get_by_test_id("stSidebarNav").get_by_role("link", name=title, exact=True).click()
    tab.get_by_role("heading", level=1, name=title, exact=True).wait_for()
    tab.wait_for_function(f"before => {ENDED} > before", arg=before)


def _choose(tab: Any, label: str, choice: str) -> None:
    tab.get_by_label(label, exact=True).click()
    tab.keyboard.type(choice)  # the list shows only what is in sight
    _then(tab, tab.get_by_role("option", name=re.compile(rf"^{choice}\b")).first.click)


def _filter_class(tab: Any) -> None:
    tab.get_by_label("label", exact=True).click()
    _then(tab, tab.get_by_role("option").first.click)
    tab.keyboard.press("Escape")


def _press(tab: Any, key: str) -> None:
    tab.evaluate("document.activeElement.blur()")  # keys count where no text is being typed
    _then(tab, partial(tab.keyboard.press, key))


def _then(tab: Any, act: Callable[[], None]) -> None:
    """Act, and wait until a run of the script that began since has ended."""
    before = tab.evaluate(ENDED)
    act()
    tab.wait_for_function(f"before => {ENDED} > before", arg=before)


# The page marks itself while its script runs; what counts is how often that mark went away.
FIRST_LINE = ".listing tbody tr >> nth=0"
ENDED = "(window.scriptsEnded || 0)"
COUNTING = """
new MutationObserver((changes) => {
    for (const change of changes)
        if (change.target.dataset.testScriptState === "notRunning")
            window.scriptsEnded = (window.scriptsEnded || 0) + 1;
}).observe(document, {subtree: true, attributeFilter: ["data-test-script-state"]});
"""


def _peak_mb(port: str) -> float:
    """Peak resident memory (Linux: VmHWM) of the child that serves a port, MB."""
    line = ["pgrep", "-P", str(os.getpid()), "-f", "--", port]
    child = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0]
    status = Path(f"/proc/{child}/status").read_text()
    return round(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024, 1)  # type: ignore[index]


@measures(app, "app")
def visit_app(
    rows: int = 1_000_000,
    findings: int = 100_000,
    boxes: int = 0,
    repeats: int = 7,
    run: Path | None = None,
) -> Document:
    """Visit a run of this size; it is made where it is absent, under runs/ by default."""
    run = run or Path("runs") / f"app_scale-{rows}-{findings}-{boxes}"
    if not (run / "CURRENT").exists():
        make_run(run, rows, findings, boxes)
    load = round(os.getloadavg()[0], 1)
    size = {"rows": rows, "findings": findings, "boxes": boxes}
    return {**size, "load": load, **visit(run, repeats, boxes > 0)}


# ---- the commands ----

LIMIT_S, LIMIT_GB = 30.0, 2.0


def make_runs(earlier: Path, run: Path, rows: int, findings: int, decisions: int) -> None:
    """Write both runs, and decide about the first findings of the later one."""
    import audit

    make_run(earlier, rows, findings)
    make_run(run, rows, findings * 19 // 20)
    decided = audit.open(run)
    prints = decided.findings["fingerprint"].head(decisions).to_list()
    if prints:
        decided.decide(prints, "keep")


@measures(app)
def commands(
    rows: int = 200_000, findings: int = 100_000, decisions: int = 10_000, only: str = ""
) -> tuple[Document, bool]:
    """What do reports, a diff and an export cost? ONLY: of names that hold this."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        earlier, run = folder / "earlier", folder / "run"
        # apart: what the maker holds would count as the peak of those started after it
        run_apart(make_runs, earlier, run, rows, findings, decisions)
        words: dict[str, list[object]] = {
            kind: ["report", run, "-o", folder / f"x.{kind}"]
            for kind in ("txt", "md", "html", "json", "sarif", "xml")
        }
        words["card"] = ["report", run, "-o", folder / "card.md"]
        words["list"] = ["report", run, "--list", "DUP003"]
        words["diff"] = ["diff", earlier, run, "--json"]
        words["export"] = ["export", run, "--out", folder / "tables"]
        for name in (name for name in words if only in name):
            found[name] = run_command(words[name], codes=(0, 1))
            found[name]["printed_mb"] = round(len(found[name].pop("printed")) / 1e6, 1)
            print(f"{name:<7} {found[name]}", flush=True)
    over = [n for n, f in found.items() if f["cpu_s"] > LIMIT_S or f["peak_gb"] > LIMIT_GB]
    return {"rows": rows, "findings": findings, "over": over, **found}, not over


if __name__ == "__main__":
    app()
