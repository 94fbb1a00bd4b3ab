"""Each row: fix first, go, inconclusive or skipped, and what the joined results add to it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import audit
from audit.results.results import open_results
from dataset_preflight.page.rows import Joined, State, _short, make_rows
from pipeline_profiler.profiling.record.opened_files import OpenedFiles
from pipeline_profiler.profiling.record.session import Run, Session
from tests.conftest import ROOT, make_tree

SESSIONS = ROOT / "sample_data" / "sessions"
STATES = ("failed", "passed", "inconclusive", "not applicable", "skipped")


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    """A healthy run, with what a training left beside it."""
    folder = tmp_path_factory.mktemp("page")
    run = folder / "run"
    audit.scan(make_tree(folder / "pets"), run=run, progress=False)
    return joined_of(run)


def joined_of(run: Path) -> Joined:
    precision = session("not input-bound", 0.01, 0.02)
    precision.results = {"verdict": "precision", "sentence": "BF16 is no faster than FP32."}
    return Joined(
        str(run), "train.py", open_results(run), session("not input-bound", 0.01, 0.02),
        OpenedFiles(), precision, checks(),
    )  # fmt: skip


def session(verdict: str, low: float, high: float, **more: Any) -> Session:
    share = (low + high) / 2
    results = {
        "verdict": verdict, "sentence": f"{verdict}: x", "causes": [], "loading": None,
        "stall": {"share": share, "low": low, "high": high}, "arms": {"W": {"period_ms": 20.0}},
    }  # fmt: skip
    run = Run.__new__(Run)
    run.config = {"batch_size": 4}
    return Session([run], {}, results=results | more, notes=[], created="")


def checks(failed: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    failed = failed or []
    summary = dict.fromkeys(STATES, 0) | {"passed": 3, "failed": len(failed)}
    codes = [check["code"] for check in failed]
    return {
        "summary": summary,
        "failed": codes,
        "checks": failed,
        "interrupted": False,
        "ended": "",
        "kind": "loader",
    } | more


def row(joined: Joined, name: str) -> Any:
    return next(r for r in make_rows(joined) if r.name == name)


def test_a_healthy_training_is_go_in_every_row(scanned: Joined) -> None:
    rows = make_rows(scanned)
    assert [r.state for r in rows] == [State.GO] * 5, rows
    assert rows[0].sentences[0] == "24 images: no errors, 0 warnings open."
    assert rows[1].sentences[0].startswith("test has 9 effective images: margin of error 2")


def test_an_open_error_and_a_leak_are_fixed_first(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "pets")
    (tree / "train" / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 broken")
    shutil.copy(tree / "train" / "dog" / "0.jpg", tree / "test" / "dog" / "copy.jpg")
    audit.scan(tree, run=tmp_path / "run", progress=False)
    joined = joined_of(tmp_path / "run")
    data = row(joined, "Data")
    assert data.state is State.FIX
    assert data.evidence["leaked"]["test"] == pytest.approx(0.1)
    assert {code for s in data.sentences for code in re.findall(r"\((\w+)\)\.$", s)} == {
        "FILE002", "SPLIT001",
    }  # fmt: skip
    broken = str(tree / "train" / "cat" / "broken.jpg")
    read = replace(joined, opened=OpenedFiles(train={broken}))
    assert "train.py reads 1 of the damaged files." in row(read, "Data").sentences


def files(joined: Joined, split: str) -> set[str]:
    assert joined.results is not None
    return set(joined.results.images().filter(split=split)["path"])


def test_images_that_are_never_read_are_counted(scanned: Joined) -> None:
    some = {p for p in files(scanned, "train") if "/cat/" not in p}
    whole = replace(scanned, opened=OpenedFiles(train=some, complete=True))
    (text,) = [s for s in row(whole, "Data").sentences if "not read" in s]
    assert text == "5 of 15 training images were not read in an epoch, most of class cat."
    partly = replace(scanned, opened=OpenedFiles(train=some))
    assert not [s for s in row(partly, "Data").sentences if "not read" in s]


def test_evaluation_images_that_are_trained_on_are_fixed_first(scanned: Joined) -> None:
    test, train = files(scanned, "test"), files(scanned, "train")
    opened = OpenedFiles(train=train | set(sorted(test)[:2]), evaluation=test)
    found = row(replace(scanned, opened=opened), "Evaluation")
    assert found.state is State.FIX
    assert found.sentences[0] == "train.py trains on 2 images of test."
    # training on all data, without an evaluation, is no fault
    alone = replace(scanned, opened=OpenedFiles(train=train | test))
    assert row(alone, "Evaluation").state is State.GO


def test_a_split_of_the_script_is_judged_where_the_data_has_none(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "pets")
    shutil.copy(tree / "train" / "dog" / "0.jpg", tree / "train" / "dog" / "copy.jpg")
    audit.scan(tree / "train", run=tmp_path / "run", progress=False)
    joined = joined_of(tmp_path / "run")
    assert row(joined, "Evaluation").state is State.SKIPPED
    assert joined.results is not None
    paths = sorted(joined.results.images()["path"])
    held_out = {p for p in paths if p.endswith(("copy.jpg", "/3.jpg", "/4.jpg"))}
    opened = OpenedFiles(train=set(paths) - held_out, evaluation=held_out, evaluated=True)
    found = row(replace(joined, opened=opened), "Evaluation")
    assert found.state is State.FIX
    assert found.sentences[0] == (
        "1 of 7 images that train.py evaluates on are copies of images that it trains on "
        "(SPLIT001)."
    )
    assert found.sentences[-1].startswith("The evaluation of train.py has 7 effective images")
    folds = OpenedFiles(train=set(paths), evaluation=set(paths), evaluated=True)
    assert row(replace(joined, opened=folds), "Evaluation").state is State.SKIPPED
    apart = OpenedFiles(train=set(paths) - held_out, evaluation=held_out - {paths[-1]})
    assert row(replace(joined, opened=apart), "Evaluation").state is not State.GO


def test_data_that_the_script_never_reads_is_fixed_first(scanned: Joined) -> None:
    elsewhere = OpenedFiles(train={"/elsewhere/a.jpg", "/elsewhere/b.jpg"})
    found = row(replace(scanned, opened=elsewhere), "Data")
    assert (found.state, found.sentences) == (
        State.FIX, ("train.py reads no image of this dataset, but 2 images in /elsewhere.",),
    )  # fmt: skip
    archive = replace(scanned, opened=OpenedFiles(train={"/elsewhere/a.npz"}))
    assert row(archive, "Data").state is State.GO


def test_a_class_without_evaluation_and_a_wish_that_is_too_fine(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "pets")
    shutil.rmtree(tree / "test" / "owl")
    audit.scan(tree, run=tmp_path / "run", progress=False)
    found = row(replace(joined_of(tmp_path / "run"), min_difference=0.02), "Evaluation")
    assert found.state is State.FIX
    assert found.sentences[:2] == (
        "test is too small to show a difference of 2.0 points.",
        "Classes of train without an evaluation image: 1 (owl).",
    )


@pytest.mark.parametrize(
    ("low", "high", "state"),
    [(0.11, 0.4, State.FIX), (0.09, 0.4, State.INCONCLUSIVE), (0.0, 0.09, State.GO)],
)
def test_the_interval_of_the_stall_decides(
    scanned: Joined, low: float, high: float, state: State
) -> None:
    assert row(replace(scanned, profile=session("x", low, high)), "Input pipeline").state is state


def test_the_first_cause_is_named_and_a_busy_machine_decides_nothing(scanned: Joined) -> None:
    cause = {"code": "PIPE002", "name": "slow-decode", "cause": "decode is slow", "next": "resize"}
    slow = replace(scanned, profile=session("x", 0.3, 0.5, causes=[cause]))
    found = row(slow, "Input pipeline")
    assert found.sentences == (
        "Data stall 40% of the step (95% CI 30% to 50%): 200 samples/s, 333 without the stall.",
        "Decode is slow (PIPE002).",
    )
    assert found.commands[0] == "resize"
    others = cause | {"code": "PIPE033"}
    busy = replace(scanned, profile=session("x", 0.3, 0.5, causes=[others]))
    assert row(busy, "Input pipeline").state is State.INCONCLUSIVE


@pytest.mark.parametrize(("batches", "lost"), [(20, "0.16"), (100, "0.8")])
def test_a_stall_of_less_than_half_a_second_an_epoch_is_no_reason_to_wait(
    scanned: Joined, batches: int, lost: str
) -> None:
    profile = session("x", 0.3, 0.5)
    profile.runs[0].config["batches"] = batches
    found = row(replace(scanned, profile=profile), "Input pipeline")
    assert found.state is (State.FIX if batches == 100 else State.GO)
    assert found.sentences[0].endswith(f"without the stall, {lost} s of an epoch.")
    profile.runs[0].config["batch_size"] = None  # of a batch sampler
    found = row(replace(scanned, profile=profile), "Input pipeline")
    assert found.sentences[0].endswith(f"(95% CI 30% to 50%), {lost} s of an epoch.")


def test_a_long_finding_ends_with_its_first_sentence_that_fits() -> None:
    long = f"Decoders disagree on this JPEG: EXIF orientation (40 files). {'Pillow ' * 20}"
    text = "Decoders disagree on this JPEG: EXIF orientation (40 files) (FILE006)."
    assert _short(long, "FILE006") == text
    assert _short("x" * 200, "FILE006") == f"{'x' * 200} (FILE006)."


@pytest.mark.parametrize(
    ("name", "state"),
    [("torch-input-bound.json.gz", State.FIX), ("torch-healthy.json.gz", State.GO)],
)
def test_recorded_sessions_are_read(scanned: Joined, name: str, state: State) -> None:
    recorded = Session.load(SESSIONS / name)
    recorded.runs[0].config.pop("batches")  # an epoch of this toy takes 0.1 s
    assert row(replace(scanned, profile=recorded), "Input pipeline").state is state


def test_a_gain_of_precision_is_shown_beside_the_loader(scanned: Joined) -> None:
    session_ = session("precision", 0.0, 0.0)
    gain = {"bf16": {"value": 1.7, "low": 1.6, "high": 1.8}}
    session_.results = {"sentence": "BF16 is faster.", "precision-script": {"speedups": gain}}
    found = row(replace(scanned, precision=session_), "Precision")
    assert found.state is State.GO
    assert found.sentences[1] == (
        "The loader would have to deliver 345 samples/s (with the step, it delivers 200)."
    )
    session_.results["sentence"] = "Inconclusive: 4 s more would settle it."
    assert row(replace(scanned, precision=session_), "Precision").state is State.INCONCLUSIVE


def test_failed_checks_are_fixed_first_and_an_early_end_is_inconclusive(scanned: Joined) -> None:
    place = {"path": "train.py", "lineno": 9}
    failed = [
        {"code": f"TRAIN00{n}", "sentence": f"Fault {n}.", "location": place if n else None,
         "next": "Mend it.", "verdict": "failed"} for n in range(5)
    ]  # fmt: skip
    failed.insert(0, failed[0] | {"code": "LOAD005"})  # faults of the training come first
    found = row(replace(scanned, checks=checks(failed)), "Training code")
    assert found.state is State.FIX
    assert found.sentences == (
        "Fault 0 (TRAIN000).", "train.py:9 Fault 1 (TRAIN001).", "train.py:9 Fault 2 (TRAIN002).",
        "Also failed: TRAIN003, TRAIN004, LOAD005.", "Next: Mend it.",
    )  # fmt: skip
    over = "The budget of 4 s was over before TRAIN016."
    for early in (
        checks(interrupted=True),
        checks(ended=over),
        checks(summary=dict.fromkeys(STATES, 0)),
    ):
        assert row(replace(scanned, checks=early), "Training code").state is State.INCONCLUSIVE


def metric(verdict: str) -> dict[str, Any]:
    place = {"path": "train.py", "lineno": 7}
    return {"code": "TRAIN024", "verdict": verdict, "sentence": "The mean is over batches.",
            "location": place, "next": "Sum over samples."}  # fmt: skip


def test_checks_of_the_evaluation_stand_in_its_row(scanned: Joined) -> None:
    wrong = replace(scanned, checks=checks([metric("failed")]))
    found = row(wrong, "Evaluation")
    assert found.state is State.FIX
    assert found.sentences[0] == "train.py:7 The mean is over batches (TRAIN024)."
    assert row(wrong, "Training code").state is State.GO
    lost = replace(wrong, missing={"Evaluation": found})
    assert row(lost, "Training code").state is State.FIX


@pytest.mark.parametrize(
    ("verdict", "state"),
    [("passed", State.GO), ("not applicable", State.GO), ("inconclusive", State.INCONCLUSIVE)],
)
def test_an_evaluation_is_go_only_where_its_metric_was_checked(
    scanned: Joined, verdict: str, state: State
) -> None:
    document = checks(kind="script") | {"checks": [metric(verdict)]}
    assert row(replace(scanned, checks=document), "Evaluation").state is state
    other = checks(kind="script") | {"checks": [metric("passed") | {"code": "TRAIN001"}]}
    assert row(replace(scanned, checks=other), "Evaluation").state is State.INCONCLUSIVE


def test_more_inconclusive_than_passed_checks_decide_nothing(scanned: Joined) -> None:
    summary = dict.fromkeys(STATES, 0) | {"passed": 1, "inconclusive": 2}
    found = row(replace(scanned, checks=checks(summary=summary)), "Training code")
    assert found.state is State.INCONCLUSIVE
