"""What a page asks of labels to review, and what the review tells of the rest."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from audit.checking.label_facts import LabelFacts, wrong_among
from audit.decisions.decisions import decide_findings, decide_samples
from audit.decisions.store import LABEL_RIGHT
from audit.errors import UsageError
from audit.interface import Run
from audit.records import Action
from audit.results.filters import source_of
from audit.results.label_review import (
    Reviewed,
    count_suspects,
    label_doubt,
    load_suspects,
    rank_of,
    read_reviewed,
    update_forecast,
)
from audit.results.results import open_results
from audit.scanning.options import ScanOptions
from tests.audit.checks.cases.label_suspect import FACTS, IMAGES, LABELS, SCORE
from tests.audit.reviewed import made_run
from tests.conftest import picture

CLASSES = ("cat", "dog", "owl")


@pytest.mark.slow
def test_a_review_from_the_top(tmp_path: Path) -> None:
    root, rng = tmp_path / "animals", np.random.default_rng(1)
    for number in range(240):
        (root / CLASSES[number % 3]).mkdir(parents=True, exist_ok=True)
        name = root / CLASSES[number % 3] / f"{rng.integers(10**6)}x{number}.png"
        Image.fromarray(picture(number, 32, 32)).save(name)
    files = sorted(p.relative_to(root).as_posix() for p in root.rglob("*.png"))
    shown = np.array([CLASSES.index(f.split("/")[0]) for f in files])
    wrong = rng.random(240) < 0.15
    shown[wrong] = (shown[wrong] + rng.integers(1, 3, wrong.sum())) % 3
    vectors = 3 * rng.normal(size=(3, 12))[shown] + rng.normal(size=(240, 12))
    pl.DataFrame({"path": files, "vector": vectors.tolist()}).write_parquet(tmp_path / "v.parquet")
    options = ScanOptions(embeddings=tmp_path / "v.parquet", jobs=1)
    options.prepare([str(root)], tmp_path / "run").carry_out(lambda *_: None)
    run = Run(tmp_path / "run")
    review = run.review_labels(20)
    assert review.rows["rank"].to_list() == list(range(1, 21))
    assert run.review_labels(5, first=10).rows["rank"].to_list() == [11, 12, 13, 14, 15]
    truth = dict(zip(files, wrong.tolist(), strict=True))
    first = review.rows.row(0, named=True)
    assert truth[first["id"]]
    seen = CLASSES[shown[files.index(first["id"])]]
    assert first["suggested_label"] == seen
    assert [len(first[side]) for side in ("given", "suggested")] == [3, 3]
    assert all(x.startswith(first["label"]) for x in first["given"])
    assert all(x.startswith(seen) for x in first["suggested"])
    assert first["decided"] is None
    # the same, as a page asks for it by rank
    results = open_results(run.path)
    assert count_suspects(results) == 240
    shown_ranks = load_suspects(results, 10, 5)
    assert [one.rank for one in shown_ranks] == [10, 11, 12, 13, 14]
    (top,) = load_suspects(results, 1, 1)
    assert (top.id, top.suggested, top.samples) == (first["id"], seen, (first["id"],))
    assert [list(top.given), list(top.suggested_near)] == [first["given"], first["suggested"]]
    assert rank_of(results, top.id) == 1
    said = label_doubt(results, top.id)
    assert said.startswith(f"Labelled {top.label}; {seen} fits better. Probability that it is")
    assert said.endswith("Number 1 of 240 labels to review.")
    (last,) = load_suspects(results, 240, 1)
    assert label_doubt(results, last.id) == label_doubt(results, "x") == ""
    assert review.listed is not None
    assert review.every is not None
    assert review.every.low <= wrong.sum() <= review.every.high
    # all of the list is reviewed, and found right: fewer are expected in the rest, too
    ids = run.review_labels(review.listed.n).rows["id"].to_list()
    decide_samples(run.path, ids[1:], Action.KEEP, evidence=LABEL_RIGHT)
    run.decide(ids[0], f"relabel:{seen}")
    after = run.review_labels(3)
    assert (after.reviewed, after.wrong) == (len(ids), 1)
    assert after.rows["decided"].to_list() == ["wrong", "right", "right"]
    assert after.listed is not None
    assert after.every is not None
    assert (after.listed.wrong, after.listed.low, after.listed.high) == (1, 1, 1)
    assert after.every.wrong < review.every.wrong - len(ids) / 4
    # the page says so, too
    reviewed = dict.fromkeys(ids[2:], "") | {ids[0]: seen}
    results = open_results(run.path)
    said = read_reviewed(results, reviewed).said()
    assert said.startswith(f"{len(ids) - 1} labels reviewed, 1 of them wrong. Of the last 20 in")
    assert f"of all 240 an estimated {after.every.wrong:.0f} are wrong (" in said
    run.undo(2)
    assert run.review_labels(1).every == review.every


UNKNOWN = (
    "No reliable estimate of wrong labels: review the first 10, and continue while many are wrong."
)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (0, UNKNOWN),
        (1, f"1 label reviewed, 1 of them wrong. {UNKNOWN}"),
        (12, "12 labels reviewed, 12 of them wrong."),
        (40, "40 labels reviewed, 40 of them wrong. Of the last 20 in this order 17 are."),
    ],
)
def test_a_review_without_a_forecast_tells_what_it_found(labels: int, said: str) -> None:
    assert Reviewed(labels, labels, 17, None, None).said() == said


def test_no_number_is_said_where_it_is_not_known_closely() -> None:
    assert wrong_among(1200, 108, 90, 130) == "an estimated 108 are wrong (9.0%; 90 to 130)"
    assert wrong_among(1200, 267, 63, 521).startswith("between 63 and 521 are wrong (5.2% to 43.4%")


def test_a_run_without_judged_labels(reviewed_run: Path) -> None:
    with pytest.raises(UsageError, match="were judged"):
        Run(reviewed_run).review_labels()


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.0])
def test_what_is_reviewed_mends_a_forecast_that_is_off(factor: float) -> None:
    inside, error, before = 0, [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        chances = np.sort(rng.beta(0.3, 2.0, 2000))[::-1]
        odds = factor * chances / (1 - chances)
        wrong = (rng.random(2000) < odds / (1 + odds)).astype(float)
        total = float(chances.sum())
        known = replace(LABELS, listed=300, wrong=total, wrong_low=total / 2, wrong_high=2 * total)
        answers = np.full(2000, np.nan)
        answers[:200] = wrong[:200]  # from the top
        _, every = update_forecast(chances, answers, known)
        inside += every.low <= wrong.sum() <= every.high
        error.append(abs(every.wrong / wrong.sum() - 1))
        before.append(abs(total / wrong.sum() - 1))
    assert inside >= 35
    assert np.mean(error) < (0.15 if factor == 1 else 0.6 * np.mean(before))


def _scored_run(folder: Path, facts: LabelFacts = FACTS) -> Path:
    """Publish a run of two labels, of which `facts` and a chance of 97 % are stored."""
    images = [{**IMAGES[0], "orientation": 6}, IMAGES[1]]
    scores = [{**SCORE, "sample_id": name} for name in ("a.jpg", "b.jpg")]
    tables = {"label_scores": scores, "label_facts": facts.rows()}
    return made_run(folder / "run", images, ("FILE004",), tables)


@pytest.mark.parametrize(
    ("change", "calibrated"),
    [({}, True), ({"gain": 2.5}, False), ({"agreed": 1.0}, False), ({"listed": 0}, False)],
)
def test_a_probability_is_given_only_where_it_is_calibrated(
    tmp_path: Path, change: dict[str, float], calibrated: bool
) -> None:
    run = _scored_run(tmp_path, replace(FACTS, labels=replace(LABELS, **change)))
    results = open_results(run)
    said = load_suspects(results, 1, 1)[0].said()
    with results.connection() as store:
        source = source_of(store, ["label.error_chance", "label.sure_chance"])
        shown = store.rows(f"SELECT l.error_chance, l.sure_chance FROM {source}")[0]
    review = Run(run).review_labels(1)
    assert ("Probability" in said) == calibrated
    assert (review.rows["error_chance"][0] == 0.97) == calibrated
    assert (review.listed is not None) == calibrated
    assert list(shown.values()) == ([0.97, 0.96] if calibrated else [None, None])


@pytest.mark.parametrize(
    ("decide", "reviewed", "wrong"),
    [
        (lambda run: decide_samples(run, ["a.jpg"], Action.KEEP), 0, 0),
        (lambda run: decide_findings(run, ["FILE004"], Action.KEEP), 0, 0),
        (lambda run: decide_samples(run, ["a.jpg"], Action.KEEP, evidence=LABEL_RIGHT), 1, 0),
        (lambda run: decide_samples(run, ["a.jpg"], Action.RELABEL, "cat"), 1, 0),
        (lambda run: decide_samples(run, ["a.jpg"], Action.RELABEL, "dog"), 1, 1),
    ],
    ids=["keep", "FILE004", "right", "its own class", "another class"],
)
def test_only_reviews_of_labels_count_as_such(
    tmp_path: Path, decide: Callable[[Path], object], reviewed: int, wrong: int
) -> None:
    run = _scored_run(tmp_path)
    decide(run)
    review = Run(run).review_labels(2)
    assert (review.reviewed, review.wrong) == (reviewed, wrong)
    decide_findings(run, ["FILE004"], Action.KEEP)  # takes no review back
    review = Run(run).review_labels(2)
    assert (review.reviewed, review.wrong) == (reviewed, wrong)
