"""Reports: what is collected from a run, and that every renderer says it, safely and whole."""

import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image

from audit.errors import RunError, UsageError
from audit.picture.features import FEATURE_ROW
from audit.records import Action, Finding, Severity
from audit.report import (
    FORMATS,
    Report,
    ReportedFinding,
    collect_report,
    documents,
    stream_findings,
    to_json,
    to_text,
    write_report,
)
from audit.report.documents import to_sarif
from audit.report.html_page import FEWEST, MOST, class_bars, from_markdown, to_html
from audit.report.markdown import escaped, to_markdown
from audit.report.thumbnails import Thumbnail, make_thumbnails
from audit.results.formatting import bytes_text, counted
from audit.run import run_version
from audit.run.store import Store, findings_table
from audit.scanning import scanning
from audit.sources import open_source
from audit.sources.paths import path_of
from dataset_preflight.foundation.pages import read_template, render_page
from dataset_preflight.foundation.terminal import visible

EVIL = "<script>alert('1')</script>"
CHECKS = ["DUP001", "FILE001", "FILE002"]
VOID = {"meta", "img", "br", "hr", "link", "input"}


def photo(path: Path, seed: int, size: tuple[int, int] = (64, 48), **options: Any) -> Path:
    """Write a small JPEG of a gradient that differs by seed."""
    ramp = Image.linear_gradient("L").resize(size).rotate(seed * 7)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.merge("RGB", (ramp, ramp, ramp.point(lambda v: 255 - v))).save(
        path, "JPEG", quality=90, comment=str(seed).encode(), **options
    )
    return path


def make_dataset(root: Path) -> Path:
    """Two classes, one with a hostile name; a leak, a turned photo, a broken and an empty file."""
    evil = EVIL.replace("/", "\u2215")  # a slash cannot be in a file name
    for i in range(4):
        photo(root / "train" / "cat" / f"{i}.jpg", i)
        photo(root / "train" / evil / f"{i}.jpg", 10 + i)
    leak = (root / "train" / "cat" / "0.jpg").read_bytes()
    (root / "test" / "cat").mkdir(parents=True)
    (root / "test" / "cat" / "leak \x1b[31m|`red`.jpg").write_bytes(leak)
    turned = Image.Exif()
    turned[0x0112] = 6
    photo(root / "test" / evil / "turned.jpg", 30, size=(400, 100), exif=turned)
    whole = photo(root / "test" / evil / "broken.jpg", 31, size=(300, 300))
    whole.write_bytes(whole.read_bytes()[:2000])
    (root / "test" / "cat" / "empty.jpg").write_bytes(b"")
    (root / "readme.txt").write_text("not an image")
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    source = open_source([str(make_dataset(folder / "data"))])
    scanning.scan(source, folder / "run", jobs=1, checks=CHECKS)
    return folder / "run"


@pytest.fixture(scope="module")
def report(run: Path) -> Report:
    return collect_report(run)


def built_run(folder: Path, samples: Sequence[dict[str, Any]], found: Sequence[Finding]) -> Path:
    """Publish a run with these samples and findings, without files behind them."""
    run = folder / "run"
    with Store.create(run_version.building_folder(run) / run_version.MEASUREMENTS) as store:
        store.create_measurements(FEATURE_ROW)
        store.append("samples", samples)
        rows = [{"sample_id": s["id"], "status": "ok", "file_key": ""} for s in samples]
        store.append("features", rows)
        store.set_meta({"dataset": "built", "roots": '{"": "/nowhere"}', "tool": "t 1"})
        store.checkpoint()
    with Store.create(run_version.building_folder(run) / "findings-0001.duckdb") as store:
        store.create_findings()
        heads, members = findings_table(found, {f.code: f"check {f.code}" for f in found})
        store.append("findings", heads)
        store.append("finding_samples", members)
        for code in sorted({f.code for f in found}):
            store.append("check_runs", [{"code": code, "name": f"check {code}", "seconds": 0.5}])
        store.checkpoint()
    run_version.publish(run, "findings-0001.duckdb")
    return run


def sample(number: int, **fields: Any) -> dict[str, Any]:
    name = f"{number}.jpg"
    return {"id": name, "uri": f"/nowhere/{name}", "source": "", "n_bytes": 10, **fields}


def finding(number: int, **fields: Any) -> Finding:
    values: dict[str, Any] = {
        "code": "ZED001", "severity": Severity.WARNING, "sample_ids": (f"{number}.jpg",),
        "message": f"Message {number}.", "evidence": {"x": number / 3}, "action": Action.REVIEW,
        "subject": str(number),
    }  # fmt: skip
    return Finding(**values | fields)


class Page(HTMLParser):
    """Collects elements and text, and fails where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.elements if tag == name]


# ---- collecting ----


def test_counts_are_those_of_the_store(run: Path, report: Report) -> None:
    with run_version.open_run(run) as store:
        stored = dict(store.query("SELECT severity, count(*) FROM findings GROUP BY 1").iter_rows())
    assert stored
    assert {k: v for k, v in report.summary.items() if v} == stored
    assert report.counts.total == sum(c.counts.total for c in report.checks)
    few = collect_report(run, worst=1)
    ranks = [c.counts.worst.rank for c in few.checks if c.counts.worst]
    assert ranks == sorted(ranks)  # the worst check comes first
    assert all(len(c.worst) == min(1, c.counts.total) for c in few.checks)
    with pytest.raises(RunError, match="audit scan"):
        collect_report(run / "none")


def test_worst_example_is_the_gravest_then_the_largest(tmp_path: Path) -> None:
    found = [
        finding(1),
        finding(2, sample_ids=("1.jpg", "2.jpg", "3.jpg")),
        finding(3, severity=Severity.ERROR),
        finding(4, severity=Severity.INFO, sample_ids=tuple(f"{i}.jpg" for i in range(9))),
    ]
    run = built_run(tmp_path, [sample(i) for i in range(9)], found)
    report = collect_report(run)
    assert report.n_files_concerned == 3, "those of an info are not"
    (check,) = report.checks
    assert [e.finding.message for e in check.worst] == [
        "Message 3.", "Message 2.", "Message 1.", "Message 4."
    ]  # fmt: skip
    assert len(check.worst[3].members) < 9 == check.worst[3].finding.n_samples


def test_completeness_names_silent_and_missing_checks(report: Report) -> None:
    told = "\n".join(report.completeness)
    assert "12 of 12 listed files read: 10 intact, 1 damaged, 1 unreadable." in told
    assert "1 other files are not samples" in told
    for code in CHECKS:
        assert code in told
    assert "checks were skipped: " in told
    assert all(not entry.startswith("DUP001") for entry in report.not_run)
    assert any(entry.startswith("IMG001") for entry in report.not_run)


def test_a_report_keeps_to_its_generation(run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    before = collect_report(copied)
    scanning.recheck(copied, checks=["FILE001"])
    assert sum(1 for _ in stream_findings(before)) == before.counts.total
    assert collect_report(copied).counts.total < before.counts.total


# ---- text ----


def test_text_says_counts_examples_completeness_and_commands(report: Report) -> None:
    text = to_text(report)
    assert "Audit of data: 12 files" in text
    for part in (*CHECKS, "Worst findings", "Examined", "Next", "audit explain", "audit show"):
        assert part in text
    for check in report.checks:
        for example in check.worst[:1]:
            assert " ".join(example.finding.message.split()[:4]) in text


def test_text_is_plain_unless_coloured_and_names_cannot_move_the_cursor(report: Report) -> None:
    plain = to_text(report, width=120)
    assert "\x1b" not in plain
    assert "leak \\x1b[31m" in plain
    coloured = to_text(report, width=120, color=True)
    assert "\x1b[1;31m" in coloured
    assert "\x1b[31m|`red`" not in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_keeps_to_its_width(report: Report, width: int) -> None:
    assert max(len(line) for line in to_text(report, width=width).splitlines()) <= width


@pytest.mark.slow
def test_a_clean_run_says_so(tmp_path: Path) -> None:
    photo(tmp_path / "data" / "a" / "1.jpg", 1)
    scanning.scan(open_source([str(tmp_path / "data")]), tmp_path / "run", jobs=1, checks=CHECKS)
    report = collect_report(tmp_path / "run")
    assert "No findings from 3 checks." in to_text(report)
    assert "No findings from 3 checks." in to_markdown(report)
    assert "<h2>Findings" not in to_html(report)
    assert json.loads("".join(to_json(report)))["findings"] == []


# ---- Markdown ----


@given(st.text())
def test_escaped_markdown_shows_the_text_itself(text: str) -> None:
    page = Page(MarkdownIt("commonmark").render(f"x {escaped(text)} x"))
    assert page.text.split() == f"x {visible(text)} x".split()


# ---- HTML ----


@pytest.fixture(scope="module")
def html(report: Report) -> str:
    return to_html(report, make_thumbnails(report))


def test_html_has_a_section_a_code_with_its_page_folded(html: str, report: Report) -> None:
    page = Page(html)
    sections = {a["id"] for a in page.tags("section")}
    assert sections == {c.code for c in report.checks if c.counts.total}
    assert {f"#{code}" for code in sections} == {a["href"] for a in page.tags("a")}
    assert len([a for a in page.tags("details") if a.get("class") == "page"]) == len(sections)
    assert "Why is this bad" in page.text


def test_pictures_go_to_the_worst_example_of_every_code_first(report: Report) -> None:
    firsts = [e.members for c in report.checks for e in c.worst[:1]]
    wanted = {m.id for members in firsts for m in members}
    assert set(make_thumbnails(report, limit=len(wanted))[0]) == wanted
    some = make_thumbnails(report, limit=1)
    assert len(some[0]) == 1 < some[1]
    text = Page(to_html(report, some)).text
    assert f"Thumbnails of 1 of {some[1]} example images." in text
    assert text.count("over this page's limit") >= some[1] - 1


@pytest.mark.slow
def test_html_does_not_grow_with_the_findings(tmp_path: Path) -> None:
    sizes = []
    for n in (2000, 5000):
        folder = tmp_path / str(n)
        run = built_run(folder, [sample(i) for i in range(n)], [finding(i) for i in range(n)])
        page = to_html(collect_report(run, worst=5))
        assert f"{n:,} findings in {n:,} of the {n:,} files of the dataset" in Page(page).text
        sizes.append(len(page))
    assert sizes[1] - sizes[0] < 500


@given(st.text())
def test_shown_text_stays_text(text: str) -> None:
    made = render_page("audit/report/notebook.html", visible, picture=Thumbnail(b"x"), name=text)
    ((tag, attrs),) = Page(made).elements
    assert (tag, attrs["alt"], attrs["title"]) == ("img", visible(text), visible(text))
    unmade = render_page("audit/report/notebook.html", visible, picture=Thumbnail(), name=text)
    assert "".join(Page(unmade).words).strip() == f"{visible(text)}: ".strip()


def test_raw_html_in_a_check_page_stays_text() -> None:
    page = Page(from_markdown("# T\n\n## Use\n<b>x</b> ![i](http://e.x/i.png) [l](javascript:1)"))
    assert {tag for tag, _ in page.elements} <= {"h4", "p", "a"}
    assert not any("javascript" in (a.get("href") or "") for a in page.tags("a"))


def test_class_bars_draw_the_extremes_and_mark_empty_classes(tmp_path: Path) -> None:
    samples = [sample(i, label=f"c{i % 60:02}", split="train") for i in range(200)]
    run = built_run(tmp_path, samples, [finding(0)])
    bars = Page(class_bars(collect_report(run).dataset))
    assert len(bars.tags("rect")) == MOST + FEWEST
    assert f"{60 - MOST - FEWEST} more classes" in bars.text
    assert "c00" in bars.text
    samples = [sample(0, label="cat", split="train"), sample(1, label="dog", split="test")]
    lacks = built_run(tmp_path / "lacks", samples, [])
    bars = Page(class_bars(collect_report(lacks).dataset))
    assert len(bars.tags("rect")) == 2
    assert len([a for a in bars.tags("text") if a["class"] == "count zero"]) == 2


def test_class_folders_whose_files_have_splits_make_no_part_without_one(tmp_path: Path) -> None:
    for number, name in enumerate(("cat/1", "dog/2", "cat/3", "dog/4")):
        photo(tmp_path / "data" / f"{name}.jpg", number)
    (tmp_path / "data" / "owl").mkdir()
    (tmp_path / "data" / "train.txt").write_text("1\n2\n")
    (tmp_path / "data" / "test.txt").write_text("3\n4\n")
    source = open_source([str(tmp_path / "data")])
    scanning.scan(source, tmp_path / "run", jobs=1, checks=["LABEL001"])
    found = collect_report(tmp_path / "run").dataset.classes
    assert {(one.split, one.label) for one in found} == {
        ("train", "cat"), ("train", "dog"), ("test", "cat"), ("test", "dog"), (None, "owl")
    }  # fmt: skip


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
def test_both_themes_have_the_contrast_they_promise(theme: int) -> None:
    part = read_template("dataset_preflight/foundation/templates/style.css").split(
        "@media (prefers-color-scheme: dark)"
    )[theme]
    colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
    pairs = [(ink, ground) for ink in ("ink", "quiet", "info") for ground in ("page", "card")]
    pairs += [(name, f"{name}-soft") for name in ("error", "warning", "info", "good")]
    for ink, ground in pairs:
        low, high = sorted((_luminance(colors[ink]), _luminance(colors[ground])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


# ---- JSON and SARIF ----


def test_json_is_the_contract(report: Report) -> None:
    document = json.loads("".join(to_json(report)))
    assert list(document) == [
        "schema", "run", "notice", "dataset", "boxes", "summary", "do_first", "costs", "decided",
        "retired", "waived", "failed_checks", "failed_readers", "folds", "findings",
        "completeness", "timing",
    ]  # fmt: skip
    assert document["schema"] == "audit-report/1"
    assert document["summary"] == report.summary
    assert document["dataset"]["split"] == {"train": 8, "test": 4}
    assert document["dataset"]["format"] == {"JPEG": 11, "none": 1}
    assert sum(document["dataset"]["class"].values()) == 12
    assert len(document["findings"]) == report.counts.total
    assert set(document["findings"][0]) == {
        "code", "name", "severity", "sample_ids", "message", "evidence", "action", "fingerprint"
    }  # fmt: skip
    ranks = [Severity(f["severity"]).rank for f in document["findings"]]
    assert ranks == sorted(ranks)


def test_json_findings_carry_all_their_samples_in_order(tmp_path: Path) -> None:
    ids = tuple(f"{i}.jpg" for i in (5, 3, 8, 1, 7, 2, 6, 4, 0))
    found = [finding(1, sample_ids=ids), finding(2, sample_ids=())]
    run = built_run(tmp_path, [sample(i) for i in range(9)], found)
    document = json.loads("".join(to_json(collect_report(run))))
    assert [f["sample_ids"] for f in document["findings"]] == [list(ids), []]
    assert [f["fingerprint"] for f in document["findings"]] == [f.fingerprint for f in found]


def test_json_streams_and_is_strict(report: Report) -> None:
    one = ReportedFinding("ZED001", "zed", Severity.INFO, (), "m", {"x": math.nan}, "keep", "f", 0)
    endless: Iterator[ReportedFinding] = itertools.repeat(one)
    pieces = list(itertools.islice(to_json(report, endless), 5))
    assert len(pieces) == 5
    whole = "".join(to_json(report, [one, one]))
    parsed = json.loads(whole, parse_constant=lambda name: pytest.fail(name))
    assert [f["evidence"] for f in parsed["findings"]] == [{"x": None}, {"x": None}]


URI = re.compile(  # RFC 3986: a uri with a scheme, or a relative reference
    r"([A-Za-z][A-Za-z0-9+.-]*:)?(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+"
)


def located(log: dict[str, Any]) -> dict[str, str]:
    """Every sample that a SARIF log names, with the absolute uri of its file."""
    (one,) = log["runs"]
    found = {}
    for result in one["results"]:
        for place in [*result["locations"], *result.get("relatedLocations", [])]:
            artifact = place["physicalLocation"]["artifactLocation"]
            assert URI.fullmatch(artifact["uri"])
            assert ":" not in artifact["uri"].split("/")[0] or "uriBaseId" not in artifact
            base = artifact.get("uriBaseId")
            start = one["originalUriBaseIds"][base]["uri"] if base else ""
            assert not base or (URI.fullmatch(start) and start.endswith("/"))
            for logical in place.get("logicalLocations", ()):
                found[logical["fullyQualifiedName"]] = urljoin(start, artifact["uri"])
    return found


@pytest.mark.slow
def test_sarif_names_the_true_file_whatever_its_name(tmp_path: Path) -> None:
    odd = [
        "a b#1.jpg",
        "50%25.jpg",
        "d?x=1&y.jpg",
        "c:d.jpg",
        "e\u0301\n.jpg",
        os.fsdecode(b"\xff.jpg"),
    ]
    for name in ("a-b", "a_b"):
        for i, file in enumerate(odd):
            photo(tmp_path / name / "cat" / file, i)
    source = open_source([f"{name}={tmp_path / name}" for name in ("a-b", "a_b")])
    scanning.scan(source, tmp_path / "run", jobs=1, checks=["DUP001"])
    found = located(json.loads("".join(to_sarif(collect_report(tmp_path / "run")))))
    assert len(found) == 2 * len(odd)
    paths = {path_of(uri) for uri in found.values()}
    assert paths == {str(tmp_path / n / "cat" / file) for n in ("a-b", "a_b") for file in odd}


@pytest.mark.slow
def test_sarif_of_a_manifest_names_files_not_ids(tmp_path: Path) -> None:
    photo(tmp_path / "set/x.jpg", 1)
    outside = photo(tmp_path / "else where/y.jpg", 1)
    rows = ["x.jpg", "x.jpg", "x.jpg", str(outside)]
    lines = [
        *(f"{row},{'' if i else 'own id'}" for i, row in enumerate(rows)),
        "http://h/a b%.jpg,",
    ]
    (tmp_path / "set/m.csv").write_text("\n".join(["path,id", *lines]))
    source = open_source([str(tmp_path / "set/m.csv")])
    scanning.scan(source, tmp_path / "run", jobs=1, checks=["DUP001", "FILE"])
    found = located(json.loads("".join(to_sarif(collect_report(tmp_path / "run")))))
    inside, other = (f"file://{quote(str(p))}" for p in (tmp_path / "set/x.jpg", outside))
    expected = {"own id": inside, "x.jpg": inside, "x.jpg#2": inside, str(outside): other}
    assert {name: found[name] for name in expected} == expected
    remote = [uri for uri in found.values() if uri.startswith("http")]
    assert set(remote) <= {"http://h/a%20b%25.jpg"}


# ---- writing ----


@pytest.mark.parametrize("kind", FORMATS)
def test_write_guesses_the_format_and_replaces_an_older_report(
    report: Report, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"x.{kind}"
    assert write_report(report, path) == path
    first = path.read_bytes()
    assert len(first) > 500
    assert write_report(report, path).read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_write_takes_known_extensions_and_never_the_place_of_another_file(
    report: Report, tmp_path: Path
) -> None:
    for name in ("x.pdf", "x", "x.html.gz"):
        with pytest.raises(UsageError, match=r"\.txt, \.md, \.html, \.json, \.sarif"):
            write_report(report, tmp_path / name)
        assert not (tmp_path / name).exists()
    boxes = tmp_path / "annotations.json"
    boxes.write_text('{"images": []}')
    with pytest.raises(UsageError, match="not a report"):
        write_report(report, boxes)
    assert boxes.read_text() == '{"images": []}'
    with pytest.raises(UsageError, match="is inside the run"):
        write_report(report, report.version.path / "x.json")
    with pytest.raises(UsageError, match="not a folder"):
        write_report(report, tmp_path / "none" / "x.json")
    assert write_report(report, Path(report.run) / "report.html").exists()


def test_a_report_that_fails_leaves_the_older_one(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    report = collect_report(run)
    write_report(report, path)
    before = path.read_bytes()

    def fail(report: Report) -> Iterator[ReportedFinding]:
        yield from itertools.islice(stream_findings(report), 1)
        raise RunError("The disk is gone.")

    monkeypatch.setattr(documents, "stream_findings", fail)
    with pytest.raises(RunError):
        write_report(report, path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


# ---- wording ----


def test_sizes_and_plurals() -> None:
    assert [bytes_text(n) for n in (0, 1, 999, 1000, 999_600, 13_900_000)] == [
        "0 bytes", "1 byte", "999 bytes", "1 kB", "1 MB", "13.9 MB"
    ]  # fmt: skip
    assert [counted(n, w) for n, w in ((1, "class"), (2, "class"), (2000, "file"))] == [
        "1 class", "2 classes", "2,000 files"
    ]  # fmt: skip
