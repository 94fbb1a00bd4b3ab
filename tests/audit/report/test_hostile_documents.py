"""Documents made of a dataset whose names are attacks: each parses, and none runs or fetches."""

import csv
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest
from markdown_it import MarkdownIt
from PIL import Image

from audit.exports.export import export_tables
from audit.report import FORMATS, collect_report, write_report
from audit.results.image_search import Match
from audit.scanning import scanning
from audit.sources import open_source
from tests.audit.hostile_files import RAW
from tests.audit.report.test_report import Page
from tests.browser.app import FLAGS, chromium, without_chromium
from tests.browser.conftest import LABEL, NAME
from tests.conftest import ROOT, picture

pytestmark = pytest.mark.slow

RAN = "attacked"  # the global that every payload sets
LABELS = (
    LABEL,
    f"<script>window.{RAN}=1<\u2215script>",
    f"'\"><svg onload='window.{RAN}=1'>",
    "x]](http:evil.example) | a | b",
    "=HYPERLINK(1)",
    "]]>&lt;b&#x3c;",
    "e\u0301\u202etxt\x1b[2J\n# title",
)
NAMES = (
    NAME,
    f'"><img src=x onerror="window.{RAN}=1">.jpg',
    f"javascript:window.{RAN}=1.jpg",
    "a#b?c%20d%zz.jpg",
    "{{x}} ${y} %s.jpg",
    "a\\b:c.jpg",
    "line\nbreak\t\u2028.jpg",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose classes and files have hostile names, in ASCII, control and raw bytes."""
    folder = tmp_path_factory.mktemp("hostile")
    for number, label in enumerate(LABELS):
        for split in ("train", "test"):
            (folder / "set" / split / label).mkdir(parents=True)
            for i in range(2):
                drawn = Image.fromarray(picture(i + 10 * number))  # the same in both splits
                drawn.save(folder / "set" / split / label / f"{i}.jpg", "JPEG")
    for number, name in enumerate(NAMES):
        place = folder / "set" / "train" / LABELS[number % len(LABELS)] / name
        Image.fromarray(picture(100 + number) // 12).save(place, "JPEG")
    raw = os.fsencode(folder / "set" / "train" / LABELS[0]) + b"/\xff\xfe.jpg"
    Path(os.fsdecode(raw)).write_bytes(b"no picture")
    scanning.scan(open_source([str(folder / "set")]), folder / "run", jobs=1)
    return folder / "run"


@pytest.fixture(scope="module")
def documents(run: Path) -> dict[str, str]:
    """The report in every format, by format."""
    report = collect_report(run, worst=12)
    return {
        form: write_report(report, run.parent / f"report.{form}").read_text("utf-8")
        for form in FORMATS
    }


def test_the_json_report_is_what_is_documented(documents: dict[str, str]) -> None:
    document = json.loads(documents["json"])
    told = (ROOT / "docs/findings.md").read_text("utf-8")
    # a run without costs
    page = told.partition("## JSON")[2].partition("A cost has")[0]
    tables = page.partition("## SARIF")[0].split("\n| Field |")[1:]
    whole, dataset, _, of_finding = [
        {name for line in table.splitlines() if line.startswith("| `")
         for name in re.findall(r"`(\w+)`", line.split("|")[1])}
        for table in tables
    ]  # fmt: skip
    assert set(document) == whole
    assert [name for name in document["timing"] if f"`{name}`" not in told] == []
    assert set(document["dataset"]) == dataset
    assert document["findings"]
    for finding in document["findings"]:
        assert set(finding) | {"fold", "same_as"} == of_finding
    named = {one for f in document["findings"] for one in f["sample_ids"]}
    assert any(one.endswith(f"/{NAMES[1]}") for one in named)
    assert not documents["json"].isprintable()  # the line breaks between findings, ...
    assert not re.search("[\x00-\x09\x0b-\x1f]", documents["json"])  # ... and no other control


# ---- the HTML page ----


def test_the_html_page_has_nothing_of_the_names(documents: dict[str, str]) -> None:
    page = Page(documents["html"])
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "iframe", "object", "form", "b"})
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "href", "srcset", "action", "xlink:href", "data"):
            address = attributes.get(name) or "#"
            assert address.startswith(("#", "data:image/")), (tag, name, address)
    (policy,) = [
        a["content"] or "" for a in page.tags("meta")
        if a.get("http-equiv", "") == "Content-Security-Policy"
    ]  # fmt: skip
    assert "default-src 'none'" in policy
    assert not re.search(r"script-src|connect-src|https?:|\*|unsafe-eval", policy)
    assert not re.search(r"url\(|@import|<script|\x1b", documents["html"])
    assert LABELS[1] in page.text


def test_a_browser_runs_and_fetches_nothing_of_the_page(
    documents: dict[str, str], run: Path
) -> None:
    """Also with the policy taken out: it is the second wall, and this tests the first."""
    walls = {"page": documents["html"]}
    walls["bare"] = re.sub(r"<meta http-equiv=[^>]*>", "", documents["html"])
    assert len(walls["bare"]) < len(walls["page"])
    # in a thread: another file's Playwright may be running in this one, and it allows one a thread
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(_open_pages, walls, run.parent).result()
    for ran, asked, address in opened:
        assert ran == "undefined"
        assert [url for url in asked if not url.startswith("data:")] == [address]


def _open_pages(pages: dict[str, str], folder: Path) -> list[tuple[str, list[str], str]]:
    """Return, for each page, the type of what a script would set, what was fetched, the address."""
    from playwright.sync_api import sync_playwright

    seen: list[tuple[str, list[str], str]] = []
    with sync_playwright() as started:
        if (path := chromium(started)) is None:
            without_chromium()
        opened = started.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        for name, text in pages.items():
            file = folder / f"{name}.html"
            file.write_text(text, "utf-8")
            tab = opened.new_page()
            asked: list[str] = []
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.goto(file.as_uri(), wait_until="load")
            seen.append((tab.evaluate(f"typeof window.{RAN}"), asked, file.as_uri()))
        opened.close()
    return seen


# ---- text for people ----


def test_the_markdown_shows_names_and_makes_nothing_of_them(documents: dict[str, str]) -> None:
    assert not RAW.search(documents["md"])
    tokens = MarkdownIt("commonmark").enable("table").parse(documents["md"])
    inline = [child for token in tokens for child in token.children or ()]
    assert {t.type for t in inline}.isdisjoint({"html_inline", "link_open", "image", "em_open"})
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert [block.strip() for block in blocks] == ["<!-- audit-report/1 -->"]
    shown = "".join(t.content for t in inline if t.type in ("text", "text_special"))
    assert NAMES[1] in shown
    rows = [token for token in tokens if token.type == "tr_open"]
    assert len(rows) >= len(LABELS)
    of_classes = [line for line in documents["md"].splitlines()
                  if line.startswith("| ") and f"{RAN}=1" in line]  # fmt: skip
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in of_classes} == {4}
    assert LABELS[1] in shown


def test_the_text_has_no_control_character(documents: dict[str, str]) -> None:
    assert not RAW.search(documents["txt"])
    assert NAMES[1] in documents["txt"].replace("\n", "")


# ---- tables and overlap ----


def test_the_exported_manifest_reads_back_in_both_formats(run: Path) -> None:
    for form in ("csv", "parquet"):
        export_tables(run, run.parent / form, form)
        source = open_source([str(run.parent / form / f"manifest.{form}")])
        samples = [sample for batch in source.batches() for sample in batch]
        assert {s.label for s in samples} >= {LABELS[1], LABELS[4], LABELS[5]}
        assert all(s.n_bytes > 0 for s in samples)
    with (run.parent / "csv/manifest.csv").open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file, strict=True) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    assert pl.read_parquet(run.parent / "parquet/manifest.parquet").height == len(samples)


def test_the_json_of_an_overlap_is_one_document(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "audit", "find", run.parent / "set", run, "--jobs", "1",
         "--json"],
        capture_output=True, cwd=run.parent, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["schema"] == "audit-overlap/1"
    assert len(document["matches"]) >= 2 * len(LABELS)
    assert set(document["matches"][0]) == {field.name for field in fields(Match)}
    assert any(match["new"].endswith(NAMES[1]) for match in document["matches"])
