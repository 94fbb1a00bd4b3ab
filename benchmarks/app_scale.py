"""How quick the app is on 1,000,000 rows and 100,000 findings, and what memory it takes.

A synthetic run is written with the real schema and the real store, the real app is started on it,
and headless Chromium uses it as a person would: from the click to the moment the page says that it
is done. Server memory is the peak resident set of the app's process. The rows carry no pictures:
drawing 24 thumbnails that are on disk already is measured by the browser tests' sample data.

    python benchmarks/app_scale.py --rows 1000000 --findings 100000 --repeats 7
    python benchmarks/app_scale.py --rows 200000 --boxes 2000000 --run runs/app_boxes

With boxes, a tenth of them with an outline, their view of the page Labels is used as well.
Targets: page switch and filter below 0.5 s at the median, next page and a decision below 0.2 s,
memory below 1 GB. Making the run takes about 20 s and 700 MB of disk; it is kept under --run and
used again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from audit.annotations import measure_boxes
from audit.picture.features import FEATURE_ROW, MEASURED
from audit.run.generations import MEASUREMENTS, building, discard_building, publish
from audit.run.store import Store
from audit.run.tables import SCHEMA_VERSION
from audit.ui.launch import command

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
    with Store.create(building(run) / MEASUREMENTS) as store:
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
    with Store.create(building(run) / "findings-0001.duckdb") as store:
        store.create_findings()
        heads, members = _findings(draw, ids["id"].to_list(), findings)
        store.append("findings", heads)
        store.append("finding_samples", members)
        store.append("check_runs", _check_runs(heads))
        store.checkpoint()
    publish(run, "findings-0001.duckdb")
    discard_building(run)


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
    heads = pl.DataFrame(
        {
            "fingerprint": prints,
            "code": [CODES[k][0] for k in kind],
            "name": [CODES[k][1] for k in kind],
            "severity": [CODES[k][2] for k in kind],
            "subject": [f"{ids[i]}@{p}" for i, p in zip(first, prints, strict=True)],
            "message": [f"This file stands out by {s:.3f}." for s in draw.random(n)],
            "evidence": ['{"sharpness": 0.11, "threshold": 0.2}'] * n,
            "action": ["review"] * n,
            "n_samples": np.where(kind == 3, 3, 1),
        }
    )
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


def visit(
    run: Path, repeats: int, boxes: bool = False, patience_ms: int = 60_000
) -> dict[str, object]:
    """Start the app on the run, use it in Chromium, return seconds by action and memory in MB."""
    from playwright.sync_api import sync_playwright

    port = _free_port()
    line = command([str(run)], port=port, browser=False)
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            tab.set_default_timeout(patience_ms)
            times = _use(tab, f"http://127.0.0.1:{port}", repeats, boxes)
            browser.close()
        return {"seconds": times, "peak_memory_mb": _peak_mb(process.pid)}
    finally:
        process.terminate()
        process.wait(20)


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("the app ended before it answered")


def _peak_mb(pid: int) -> float:
    """Peak resident memory of a process (Linux: VmHWM), MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024, 1)  # type: ignore[index]


def main() -> None:
    """Make the run where it is absent, visit it, print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--findings", type=int, default=100_000)
    parser.add_argument("--boxes", type=int, default=0, help="boxes on the pictures")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--run", type=Path, help="default: one of this size under runs/")
    args = parser.parse_args()
    name = f"app_scale-{args.rows}-{args.findings}-{args.boxes}"
    args.run = args.run or Path("runs") / name
    if not (args.run / "CURRENT").exists():
        make_run(args.run, args.rows, args.findings, args.boxes)
    found = visit(args.run, args.repeats, args.boxes > 0)
    size = {"rows": args.rows, "findings": args.findings, "boxes": args.boxes}
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"benchmark": "app_scale", **size, "load": load, **found}))


if __name__ == "__main__":
    main()
