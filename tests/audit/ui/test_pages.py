"""The pages' logic without a browser: what they say, decide and put into the link."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from audit.checking.check import all_checks
from audit.decisions import decisions
from audit.decisions.decisions import tagged_samples
from audit.decisions.store import DecisionStore
from audit.records import Action
from audit.results import findings as browse
from audit.results.findings import FindingFilter, overlap_matrix
from audit.results.results import open_results
from audit.run import run_version
from audit.scanning import scanning
from audit.sources import open_source
from audit.subset import Goal, make_plan
from audit.subset.source import frame_from_run
from audit.ui import subset_tables
from audit.ui.duplicates import FAMILY, heat_of_splits
from audit.ui.frame import PAGES as KEYS
from tests.audit.reviewed import findings, made_run
from tests.audit.ui.pages import Show, html, link_of, shown, text

pytestmark = pytest.mark.slow


PAGES = (
    "overview", "findings", "duplicates", "labels", "explore", "changes", "decisions", "subset",
    "start",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_without_a_run_every_page_says_how_to_make_one(show: Show, page: str) -> None:
    said = text(show(page))
    assert ("audit scan" in said) or page == "start"


def test_the_overview_tells_counts_and_first_steps(show: Show, scanned: Path) -> None:
    at = show("overview", scanned)
    figures = {m.label: m.value for m in at.metric}
    assert figures["Files"] == "24"
    assert figures["Splits"] == "2"
    said = text(at)
    assert "in several splits" in said
    assert "24 of 24 listed files read" in said
    assert at.get("download_button")[0].proto.label == "Report (HTML)"
    at.button(key="step SPLIT001").click().run()
    page, asked = at.session_state["go"]
    assert (page, asked["code"]) == ("duplicates", "SPLIT001")  # where a copy can be dropped


def test_the_overview_of_a_run_without_files_opens(show: Show, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text('{"path": "a.jpg"}\n')
    source = open_source([str(tmp_path / "none.jsonl")], exclude=["*"])
    scanning.scan(source, tmp_path / "none-run", jobs=1)
    at = show("overview", tmp_path / "none-run")
    assert "This run lists no file." in text(at)
    assert {m.label: m.value for m in at.metric}["Files"] == "0"


def test_the_overview_names_checks_that_failed(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    def find(*_: object) -> object:
        raise ZeroDivisionError("half of nothing")

    with monkeypatch.context() as patched:
        patched.setattr(type(all_checks()["IMG003"]), "find", find)
        scanning.recheck(run, checks=["IMG003"])
    at = shown(monkeypatch, "overview", run)
    assert "1 check failed, so this audit is not complete" in text(at)
    assert "IMG003 blurry-image failed and found nothing: ZeroDivisionError" in text(at)
    assert 'class="notice error"' in html(at)


def test_a_link_opens_the_filtered_finding(show: Show, scanned: Path) -> None:
    at = show("findings", scanned, code="IMG001")
    assert "IMG001" in text(at)
    assert at.selectbox(key="choice code").value == "IMG001"
    at.selectbox(key="choice severity").set_value("error").run()
    assert link_of(at)["severity"] == "error"
    assert "No finding fits these filters" in text(at)


def test_a_fold_is_one_line_that_opens(show: Show, tmp_path: Path) -> None:
    cut = [{"id": f"{number}.jpg", "trailing_bytes": 9} for number in range(30)]
    run = made_run(tmp_path / "folds", cut, ["FILE003"])
    at = show("findings", run, code="FILE003")
    assert "One of 30 findings of this kind" in text(at)
    at.button(key="unfold").click().run()
    assert link_of(at)["fold"].startswith("FILE003 info")
    assert "One of 30 findings" not in text(at)
    assert "30 findings, the most severe first" in text(at)


def test_deciding_goes_to_the_next_finding_and_can_be_taken_back(show: Show, run: Path) -> None:
    at = show("findings", run, code="FILE001")
    first = next(iter(findings(run, "FILE001")))
    at.text_input(key="note of the decision").set_value("<b>note</b>")
    at.button(key="drop").click().run()
    done = DecisionStore(run).log()
    assert {d.subject for d in done} == {first, "train/cat/broken.jpg"}
    assert {d.note for d in done} == {"<b>note</b>"}
    assert "Dropped: 1 finding and 1 sample" in text(at)
    assert "No finding fits" in text(at)  # it is decided, and the list shows open ones


def test_undo_reports_that_there_is_no_decision_to_undo(
    monkeypatch: pytest.MonkeyPatch, scanned: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["app.py", str(scanned)])
    at = AppTest.from_string("from audit.ui.frame import draw_sidebar\ndraw_sidebar()").run()
    at.button[[b.label for b in at.button].index("Undo")].click().run()
    assert at.session_state["said"] == ("There is no decision to undo.", "good")


def test_a_false_positive_is_waived(show: Show, run: Path) -> None:
    at = show("findings", run, code="IMG001")
    at.button(key="waive").click().run()
    assert [d.verb for d in DecisionStore(run).log()] == [Action.FALSE_POSITIVE]
    assert "waived" in text(show("findings", run, code="IMG001", status="waived"))


def test_copies_are_never_dropped_whole(show: Show, scanned: Path) -> None:
    at = show("findings", scanned, code="DUP001")
    assert "drop" not in {b.key for b in at.button}
    assert "select those to drop" in text(at)


def test_relabelling_needs_a_class(show: Show, run: Path) -> None:
    at = show("findings", run, code="LABEL005")
    assert at.button(key="do relabel").disabled
    at.selectbox(key="value of relabel").set_value("dog").run()
    at.button(key="do relabel").click().run()
    assert {(d.verb, d.value) for d in DecisionStore(run).log()} == {(Action.RELABEL, "dog")}


def test_a_keeper_rule_is_previewed_then_applied(show: Show, run: Path) -> None:
    at = show("duplicates", run, code="DUP003")
    assert "groups" in text(at)
    at.button(key="apply rule").click().run()
    dropped = {d.subject for d in DecisionStore(run).log() if d.kind == "sample"}
    assert dropped == {"train/dog/0.jpg", "train/dog/small.jpg"}  # the largest stays
    assert "2 samples" in text(at)


def test_what_another_tab_decided_is_not_recorded_again(show: Show, run: Path) -> None:
    at = show("findings", run, code="IMG001")
    decisions.decide_findings(run, ["IMG001"], Action.DROP)
    before = len(DecisionStore(run).log())
    at.button(key="drop").click().run()
    assert "has decided this already" in text(at)
    assert len(DecisionStore(run).log()) == before


def test_a_group_across_splits_stays_open_until_a_side_is_named(show: Show, run: Path) -> None:
    at = show("duplicates", run, code="SPLIT001")
    assert at.button(key="apply rule").disabled
    assert (
        'the split to drop copies from is not named: choose it above, in "Drop duplicates from"'
        in text(at)
    )
    at.selectbox(key="choice from").set_value("train").run()
    at.button(key="apply rule").click().run()
    assert {d.subject for d in DecisionStore(run).log() if d.kind == "sample"} == {
        "train/cat/1.jpg"
    }


def test_the_split_that_gives_way_is_chosen_by_a_key(show: Show, scanned: Path) -> None:
    at = show("duplicates", scanned, code="SPLIT001")
    assert at.button(key="next split").proto.shortcut == "s"
    assert "S" in dict(KEYS["duplicates"])
    chosen = []
    for _ in range(3):
        at.button(key="next split").click().run()
        chosen.append(link_of(at).get("from", ""))
        assert at.selectbox(key="choice from").value == chosen[-1]
        assert at.button(key="apply rule").disabled == (chosen[-1] == "")
    assert sorted(chosen) == ["", "test", "train"]
    assert chosen[-1] == ""
    behind = show("duplicates", scanned, code="SPLIT001", image="train/cat/dark.jpg")
    assert not behind.button(key="next split").proto.shortcut


def test_the_overlap_of_splits(show: Show, scanned: Path) -> None:
    at = show("duplicates", scanned, view="Overlap of splits")
    assert not at.exception
    matrix = overlap_matrix(open_results(scanned))
    shared = {(row["of"], row["in"]): row["shared"] for row in matrix.rows(named=True)}
    assert shared == {("test", "train"): 1, ("train", "test"): 1}


def test_a_cell_of_the_overlap_opens_what_both_splits_share(show: Show, scanned: Path) -> None:
    results = open_results(scanned)
    both, one = (
        browse.count_findings(results, FindingFilter(codes=FAMILY, split="train", beside=other))
        for other in ("test", None)
    )
    assert 0 < both < one
    at = show("duplicates", scanned, split="train", beside="test", status="all")
    assert at.selectbox(key="choice beside").value == "test"
    at.selectbox(key="choice split").set_value("test").run()
    assert "beside" not in link_of(at)


def test_a_cell_without_overlap_has_no_colour() -> None:
    matrix = pl.DataFrame([{"of": "a", "in": "b", "shared": 0, "files": 10, "share": 0.0}])
    cells, words = heat_of_splits(matrix).to_dict()["layer"]
    assert [one["name"] for one in heat_of_splits(matrix).to_dict()["params"]] == ["click"]
    empty = {"test": "datum.shared == 0", "value": "#88888818"}
    assert cells["encoding"]["color"]["condition"] == empty
    assert words["encoding"]["color"]["condition"][0]["value"] == "#7a7f87"


def test_labels_show_counts_and_lead_to_what_was_found(show: Show, scanned: Path) -> None:
    at = show("labels", scanned, view="Classes")
    table = at.dataframe[0].value
    assert int(table.drop(columns="class").to_numpy().sum()) == 24
    n = len(findings(scanned, "LABEL005"))
    assert n
    at.button(key="see LABEL").click().run()
    assert at.session_state["go"] == (
        "findings", {"run": scanned.name, "code": "LABEL", "status": "all"}
    )  # fmt: skip
    assert "with 2 labels" in text(show("findings", scanned, code="LABEL005"))


def test_explore_filters_through_the_link(show: Show, scanned: Path) -> None:
    at = show("explore", scanned)
    assert "24 files" in text(at)
    at.multiselect(key="filter label").set_value(["dog"]).run()
    assert link_of(at)["where"] == '[["label","in","dog"]]'
    assert "11 files" in text(at)
    again = show("explore", scanned, where='[["label","in","dog"]]', sort="width")
    assert "11 files" in text(again)
    assert again.multiselect(key="filter label").value == ["dog"]


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"where": "{broken"}, "clear the filters"),
        ({"where": '[["no column","in","x"]]'}, "has no column"),
        ({"after": "?"}, "go to the first page"),
        ({"where": '[["label","between",0,1]]'}, "holds no numbers"),
        ({"where": '[["width","between",NaN,1]]'}, "The filter in this link is damaged"),
        ({"page": "²", "view": "Scatter", "lasso": "[[NaN,0],[1,2]]"}, "24 files, page 1"),
    ],
)
def test_a_damaged_link_is_one_sentence(
    show: Show, scanned: Path, link: dict[str, str], said: str
) -> None:
    shown = text(show("explore", scanned, **link))
    assert said in shown
    assert "lasso holds" not in shown


def test_the_keys_belong_to_the_picture_in_front(show: Show, run: Path) -> None:
    for page in ("findings", "duplicates"):
        at = show(page, run, code="DUP003")
        assert [b.proto.shortcut for b in at.button if b.label == "Next page"] == ["pagedown"]
        at = show(page, run, code="DUP003", image="train/cat/dark.jpg")
        keys = {b.key: b.proto.shortcut for b in at.button if b.proto.shortcut}
        assert all(name.startswith("image ") for name in keys), keys
        assert {v.lower() for v in keys.values()} == {"k", "d", "u", "z", "left", "right"}
    at.button(key="image Drop").click().run()
    assert [(d.subject, d.verb) for d in DecisionStore(run).log()] == [
        ("train/cat/dark.jpg", Action.DROP)
    ]
    at.button(key="image Undo").click().run()
    assert all(d.undone for d in DecisionStore(run).log())


def test_recall_without_classes_is_one_sentence(show: Show, tmp_path: Path) -> None:
    rows = [{"id": f"{i}.jpg", "label": None, "split": "test"} for i in range(9)]
    run = made_run(tmp_path / "unlabelled", rows)
    at = show("subset", run, metric="recall")
    assert "no class to measure the recall of" in text(at)
    at = show("subset", run, looks="inf", half="nan")
    assert "No file is eligible" in text(at)


def test_a_damaged_run_says_so_and_offers_a_scan(show: Show, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "CURRENT").write_text("?")
    at = show("findings", damaged, run="damaged")
    assert at.title[0].value == "No run is open"
    assert "damaged" in html(at).partition('class="notice error"')[2]
    assert not at.get("bidi_component")
    at.button(key="way out").click().run()
    assert at.session_state["go"][0] == "start"


def test_a_link_cannot_open_another_folder(show: Show, scanned: Path, run: Path) -> None:
    at = show("overview", scanned, run=str(run))
    assert "which this app was not started with" in text(at)
    assert not at.metric  # nor is another dataset drawn in its place
    at.button(key="way out").click().run()
    assert at.session_state["go"][0] == "start"


def test_an_image_opens_by_the_ids_of_the_index_only(show: Show, scanned: Path) -> None:
    at = show("explore", scanned, image="/etc/hostname")
    assert "This run has no file" in text(at)
    at = show("explore", scanned, image="train/cat/dark.jpg")
    assert "IMG001" in text(at)


def test_a_subset_is_planned_and_drawn(show: Show, scanned: Path) -> None:
    at = show("subset", scanned, split="train", half="20.0")
    assert "images" in text(at)
    table = at.dataframe[0].value
    assert set(table["class"]) == {"cat", "Cat", "dog"}
    draw = next(b for b in at.button if b.label == "Draw")
    draw.click().run()
    drawn = at.session_state["drawn subset"][1]
    assert f"Drew {drawn.n_units:,} of" in text(at)
    assert drawn.n_units == drawn.rows.height > 0
    assert {"sample_id", "stratum", "weight", "seed", "plan_hash"} <= set(drawn.rows.columns)
    offered = [one.proto.label for one in at.get("download_button")]
    assert offered == ["Download the plan", "Download CSV", "Download Parquet"]
    assert pl.read_parquet(subset_tables.subset_parquet(drawn)).equals(drawn.rows)
    plan = make_plan(frame_from_run(scanned, "train"), Goal("accuracy", half_width=0.2))
    written = json.loads(subset_tables.plan_json(plan))
    assert (written["schema"], written["n"]) == ("subset-plan/1", plan.n)


def test_wrong_predictions_stand_beside_the_truth(
    show: Show, scanned: Path, tmp_path: Path
) -> None:
    at = show("subset", scanned, split="train", half="20.0")
    files = frame_from_run(scanned, "train")
    model = tmp_path / "model.csv"
    said = pl.when(pl.col("label") == "dog").then(pl.lit("cat")).otherwise("label")
    files.select(
        "sample_id", prediction=said, confidence=pl.int_range(pl.len()) / pl.len()
    ).write_csv(model)
    at.text_input(key="predictions file").set_value(str(model)).run()
    wrong = at.dataframe[-1].value
    assert "on the whole set" in text(at)
    assert set(wrong["truth"]) == {"dog"}
    assert set(wrong["prediction"]) == {"cat"}
    assert list(wrong["confidence"]) == sorted(wrong["confidence"], reverse=True)
    at.text_input(key="predictions file").set_value(str(tmp_path / "none.csv")).run()
    assert "none.csv does not exist" in text(at)


def test_slices_and_training_pictures_stand_beside_wrong_answers(
    show: Show, sample_data_run: Path, tmp_path: Path
) -> None:
    at = show("subset", sample_data_run, split="all files")
    reached = next(m.value for m in at.metric if "new data" in m.label.replace("\\", ""))
    assert reached == "± 6.0"  # 5 points, the usual wish, are out of reach of these files
    assert "unreachable" not in text(at)
    files = frame_from_run(sample_data_run, None)
    rng = np.random.default_rng(0)
    in_fish = (files["label"] == "fish").fill_null(value=False).to_numpy()
    model = tmp_path / "model.csv"
    for fail, slices in ((0.8, 1), (0.1, 0)):
        wrong = pl.Series(rng.random(len(files)) < np.where(in_fish, fail, 0.1))
        files.select(
            "sample_id",
            prediction=pl.when(wrong).then(pl.lit("tree")).otherwise("label"),
            confidence=pl.Series(rng.random(len(files))),
        ).filter(pl.col("prediction").is_not_null()).write_csv(model)
        at.text_input(key="predictions file").set_value(str(model)).run()
        keys = [b.key for b in at.button if str(b.key).startswith("slice ")]
        assert len(keys) == slices, text(at)
        assert ("more wrong answers than expected by chance" in text(at)) == (slices == 0)
        assert "Most similar training images" in [h.value for h in at.header]
        if keys:
            assert "label: fish" in text(at)
            at.button(key=keys[0]).click().run()
            assert at.session_state["go"][1]["where"] == '[["label","in","fish"]]'


def test_the_log_shows_decisions_and_the_export_writes(
    show: Show, run: Path, tmp_path: Path
) -> None:
    decisions.decide_samples(run, ["train/cat/dark.jpg"], Action.DROP)
    at = show("decisions", run)
    assert list(at.dataframe[0].value["subject"]) == ["train/cat/dark.jpg"]
    at.text_input(key="folder of the export").set_value(str(tmp_path / "out"))
    at.button(key="export").click().run()
    assert "23 samples kept (0 relabelled or moved), 1 dropped." in text(at)
    assert "train/cat/dark.jpg" in (tmp_path / "out" / "quarantine.csv").read_text()


def test_the_kept_set_is_exported_in_each_form(
    monkeypatch: pytest.MonkeyPatch, run: Path, tmp_path: Path
) -> None:
    started: list[tuple[object, ...]] = []
    monkeypatch.setattr("audit.ui.decisions.start_job", lambda *a, **k: started.append((*a, k)))
    monkeypatch.setattr("audit.ui.decisions.begin", lambda job: None)
    at = shown(monkeypatch, "decisions", run)

    def export(form: str) -> str:
        at.selectbox(key="format of the export").set_value(form).run()
        at.text_input(key="folder of the export").set_value(str(tmp_path / form)).run()
        at.button(key="export").click().run()
        return text(at)

    assert "tasks.json" in export("label-studio")
    assert (tmp_path / "label-studio" / "config.xml").is_file()
    assert "annotation" in export("yolo")  # there are none: a sentence, and no file
    assert not (tmp_path / "yolo").exists()
    export("copy")
    assert started == [
        (f"Folder of {run.name}", "apply", run, [str(tmp_path / "copy"), "copy"],
         {"makes": tmp_path / "copy"})
    ]  # fmt: skip
    assert "tasks.json" not in text(at)  # what was written before is not of this form


# ---- what may go wrong ----


@pytest.mark.parametrize("page", ["overview", "explore"])
def test_a_run_deleted_under_the_app_is_one_sentence(show: Show, run: Path, page: str) -> None:
    at = show(page, run)
    shutil.rmtree(run)
    assert "is gone: it was moved or deleted" in text(at.run())


def test_a_ledger_that_became_read_only_says_so_and_records_nothing(show: Show, run: Path) -> None:
    at = show("findings", run, code="IMG001")
    (run / "decisions.sqlite").mkdir()
    at.button(key="keep").click().run()
    assert "cannot be written" in text(at)
    assert "cannot be written" in text(show("findings", run))  # nor where it was from the start


def test_what_a_newer_version_wrote_is_one_sentence(show: Show, run: Path) -> None:
    with closing(sqlite3.connect(run / "decisions.sqlite")) as ledger:
        ledger.execute("PRAGMA user_version = 99")
        ledger.commit()
    assert "newer version" in text(show("findings", run))
    (run / "CURRENT").write_text('{"schema": 99, "generation": "gen-0001", "findings": "x"}')
    assert "newer version" in text(show("overview", run))


def test_every_page_says_that_it_shows_another_version_than_current(show: Show, run: Path) -> None:
    at = show("overview", run)
    assert "newest version that opens" not in text(at)
    (run / "CURRENT").unlink()
    for seen in (at.run(), *(show(page, run) for page in PAGES[:-1])):
        assert "CURRENT is missing. This is gen-0001/" in text(seen)


def test_what_a_newer_version_publishes_under_the_app_is_one_sentence(
    show: Show, run: Path
) -> None:
    open_pages = [show("findings", run, code="IMG001") for _ in range(2)]
    open_pages[0].button(key="keep").click().run()
    kept = DecisionStore(run).log()
    assert kept
    shutil.copytree(run / "gen-0001", run / "gen-0002")
    found = run_version.read_pointer(run)
    assert found is not None
    findings_file = found.findings.name
    new = {"schema": 99, "generation": "gen-0002", "findings": findings_file}
    (run / "CURRENT").write_text(json.dumps(new))
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    open_pages[1].button(key="keep").click()
    for at in open_pages:
        assert "newer version (schema 99" in text(at.run())
    for page in PAGES[:-1]:
        assert "newer version (schema 99" in text(show(page, run)), page
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
    assert DecisionStore(run).log() == kept


def test_a_scan_that_publishes_shows_at_the_next_click(
    show: Show, tree: Path, tmp_path: Path
) -> None:
    run = tmp_path / "pets-run"
    scanning.scan(open_source([str(tree)]), run, jobs=1, checks=["IMG001"])
    at = show("overview", run)
    assert next(m.value for m in at.metric if m.label == "Files") == "24"
    (tree / "train" / "cat" / "0.jpg").unlink()
    scanning.scan(open_source([str(tree)]), run, jobs=1, checks=["IMG001"])
    at.run()
    assert next(m.value for m in at.metric if m.label == "Files") == "23"


# ---- links that name what is decided by now, or gone ----


GONE = "0" * 16


@pytest.mark.parametrize(("page", "what"), [("duplicates", "group"), ("findings", "finding")])
def test_a_link_to_what_is_gone_says_so_and_opens_the_first(
    show: Show, scanned: Path, page: str, what: str
) -> None:
    said = text(show(page, scanned, finding=GONE))
    assert f"The {what} of this link is not in the run" in said
    assert f"The first {what} of the list is open in its place." in said
    assert "this link" not in text(show(page, scanned))


@pytest.mark.parametrize(("page", "what"), [("duplicates", "group"), ("findings", "finding")])
def test_a_link_to_what_is_decided_says_so(show: Show, run: Path, page: str, what: str) -> None:
    first = next(iter(findings(run, "DUP001")))
    decisions.decide_findings(run, [first], Action.KEEP)
    said = text(show(page, run, finding=first))
    assert f"The {what} of this link is decided: the list has those that are open." in said
    assert "this link" not in text(show(page, run, finding=first, status="all"))


@pytest.mark.parametrize("page", ["duplicates", "findings"])
@pytest.mark.parametrize("way", ["start", "before"])
def test_a_link_to_a_page_of_the_list_that_is_empty_by_now_shows_the_first_page(
    show: Show, run: Path, page: str, way: str
) -> None:
    anchor = GONE
    if way == "start":  # decided, and nothing follows it
        anchor = _last(run)
        decisions.decide_findings(run, [anchor], Action.FALSE_POSITIVE)
    said = text(show(page, run, **{way: anchor}))
    assert "No open group" not in said
    assert "No finding fits" not in said


def _last(run: Path) -> str:
    return str(open_results(run).findings()["fingerprint"][-1])


def test_no_open_group_of_a_kind_is_not_none_at_all(show: Show, run: Path) -> None:
    decisions.decide_findings(run, ["DUP003"], Action.FALSE_POSITIVE)
    said = text(show("duplicates", run, code="DUP003"))
    assert "No open group of DUP003." in said
    assert "No open group of duplicates." not in said


@pytest.mark.parametrize("page", ["duplicates", "findings"])
def test_a_status_that_does_not_exist_is_the_first_one(show: Show, run: Path, page: str) -> None:
    decisions.decide_findings(run, ["DUP001"], Action.KEEP)
    at = show(page, run, status="closed")
    assert at.selectbox(key="choice status").value == "open"
    assert text(at) == text(show(page, run, status="open"))


# ---- a decision on all that fit ----


DOGS = '[["label","in","dog"]]'


def test_all_that_fit_are_decided_at_once_and_taken_back_at_once(show: Show, run: Path) -> None:
    at = show("explore", run, where=DOGS)
    at.button(key="act on all").click().run()
    assert "11 files: label: dog." in text(at)
    assert not [b.key for b in at.button if b.proto.shortcut]  # no key acts behind the dialogue
    assert not DecisionStore(run).log()
    assert not [b for b in at.button if b.key == "bulk"]  # nothing is chosen unasked
    at.segmented_control(key="verb for all that fit").set_value("Drop").run()
    at.text_input(key="note of the decision").set_value("all dogs")
    at.button(key="bulk").click().run()
    done = DecisionStore(run).log()
    assert len(done) == 11
    assert len({d.batch for d in done}) == 1
    assert {(d.verb, d.note) for d in done} == {(Action.DROP, "all dogs")}
    assert "act" not in link_of(at)
    DecisionStore(run).undo()
    assert all(d.undone for d in DecisionStore(run).log())


def test_a_relabel_without_a_class_decides_nothing(show: Show, run: Path) -> None:
    at = show("explore", run, where=DOGS, act="all")
    at.segmented_control(key="verb for all that fit").set_value("Relabel").run()
    at.button(key="bulk").click().run()
    assert "is incomplete" in text(at)
    assert not DecisionStore(run).log()


def test_a_new_class_is_named_with_the_nearest(show: Show, run: Path) -> None:
    for verb, name, sure in (("Relabel", "dgo", False), ("Relabel", "cat", True)):
        at = show("explore", run, where=DOGS, act="all")
        at.segmented_control(key="verb for all that fit").set_value(verb).run()
        at.text_input(key="value for all that fit").set_value(name).run()
        at.button(key="bulk").click().run()
        assert ("has the class 'dgo' (the nearest is 'dog')" in text(at)) is not sure
        DecisionStore(run).undo()


def test_all_that_fit_are_tagged_and_a_tag_is_a_filter(show: Show, run: Path) -> None:
    at = show("explore", run, where=DOGS, act="all")
    assert not [b for b in at.selectbox if b.key == "choice tag"]  # nothing has a tag
    at.segmented_control(key="verb for all that fit").set_value("Tag").run()
    at.text_input(key="value for all that fit").set_value("four legs").run()
    at.button(key="bulk").click().run()
    assert "Tagged four legs: 11 samples" in text(at)
    assert tagged_samples(run).height == 11
    at = show("explore", run, tag="four legs")
    assert "11 files, page 1" in text(at)
    at = show("explore", run, tag="four legs", where='[["split","in","test"]]')
    assert "11 files, page 1" not in text(at)
    assert any("tagged four legs" in b.label for b in at.button)
    at = show("explore", run, tag="no such tag")
    assert not at.exception
    dog = tagged_samples(run)["id"][0]
    assert "four legs" in text(show("explore", run, image=dog))


def test_digits_are_classes_in_the_labelling_mode_alone(show: Show, run: Path) -> None:
    at = show("explore", run, image="train/cat/dark.jpg")
    assert "1" not in {b.proto.shortcut for b in at.button}
    at.toggle(key="toggle labelling").set_value(True).run()
    keys = {b.proto.shortcut: b.label for b in at.button if b.key and b.key.startswith("class ")}
    assert keys == {"1": "Cat", "2": "cat", "3": "dog"}
    at.button(key="class 3").click().run()
    at.button(key="class 2").click().run()  # the class that the file has
    done = [(d.subject, d.verb, d.value) for d in reversed(DecisionStore(run).log())]
    dark = "train/cat/dark.jpg"
    assert done == [(dark, Action.RELABEL, "dog"), (dark, Action.KEEP, None)]
