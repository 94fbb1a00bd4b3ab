"""The stores that are open: one a generation, with the ledger, closed when others were used."""

import contextlib
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import polars as pl
import pytest

from audit.decisions import waivers
from audit.decisions.decisions import decide_samples
from audit.errors import UsageError
from audit.interface import Run
from audit.records import Action
from audit.results import findings, reader
from audit.results.decision_summary import summarise_decisions
from audit.results.findings import FindingFilter
from audit.results.results import open_results
from audit.run import run_version


def test_stores_that_were_not_used_of_late_are_closed(
    reviewed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_OPEN", 1)
    monkeypatch.setattr(reader, "_opened", {})
    first, second = (Path(shutil.copytree(reviewed_run, tmp_path / name)) for name in "ab")
    with open_results(first).connection() as store, open_results(second).connection():
        assert store.scalar("SELECT 1") == 1  # in use by this thread
    for run in (second, first, second):
        with open_results(run).connection() as store:
            assert store.scalar("SELECT count(*) FROM samples") == 24
    assert list(reader._opened) == [open_results(second).key]
    assert not reader.is_open(open_results(first).key)


def test_the_statuses_of_a_store_go_forward_alone(run: Path) -> None:
    before = open_results(run)
    assert open_results(run).decisions is before.decisions  # read once
    assert _settled(before) == 0
    Run(run).decide("FILE001", "false-positive", by="Ada")
    after = open_results(run)
    assert _settled(after) == _settled(before) == 1, "an earlier look does not take it back"
    Run(run).undo(by="Ada")
    assert _settled(after) == 1, "it is brought up to date by a look"
    assert _settled(open_results(run)) == _settled(after) == 0


def _settled(seen: reader.RunReader) -> int:
    each = (FindingFilter(status=status) for status in ("decided", "waived"))
    return sum(findings.count_findings(seen, one) for one in each)


def test_only_what_was_decided_since_is_looked_up(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    known = waivers.resolve
    monkeypatch.setattr(
        waivers, "resolve", lambda s, rows: asked.append(rows.height) or known(s, rows)
    )
    ids = Run(run).images["id"].to_list()
    for sample in ids[:3]:
        Run(run).decide(sample, "drop", by="Ada")
        asked.clear()
        assert open_results(run).decisions.by_sample[sample] == "drop"
        assert sum(asked) == 1, "one was decided"
    Run(run).undo(by="Ada")
    asked.clear()
    assert set(open_results(run).decisions.by_sample) == set(ids[:2])
    assert not asked, "an undo needs no look-up"


@pytest.mark.slow
def test_a_summary_that_was_kept_up_is_that_of_the_whole_ledger(run: Path) -> None:
    """Any acts in any order: what is kept of the acts before changes nothing of the sum."""
    mine, draw = Run(run), random.Random(5)
    ids, prints = mine.images["id"].to_list(), mine.findings["fingerprint"].to_list()
    for _ in range(40):
        with contextlib.suppress(UsageError):  # nothing to undo, or copies that may not go
            match draw.randrange(5):
                case 0:
                    mine.undo(by="Ada")
                case 1:
                    mine.decide(draw.choice(prints), draw.choice(("keep", "drop")), by="Ada")
                case 2:
                    mine.decide(draw.choice(prints), "false-positive", by="Ada")
                case _:
                    verb = draw.choice(("keep", "drop", "relabel:owl", "tag:night"))
                    mine.decide(draw.sample(ids, 2), verb, by="Ada")
        kept = open_results(run).decisions
        whole = summarise_decisions(run, run_version.require(run))
        assert sorted(kept.statuses) == sorted(whole.statuses)
        assert kept.applied.stale.equals(whole.applied.stale)
        assert (kept.by_sample, kept.tags) == (whole.by_sample, whole.tags)


def test_who_waits_for_a_summary_takes_it_where_it_has_what_was_decided_by_then(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, ids = open_results(run).key, Run(run).images["id"].to_list()
    made, goes_on = list[int](), Event()

    def slow(*args: Any) -> Any:
        made.append(1)
        assert goes_on.wait(300)
        found = summarise_decisions(*args)
        decide_samples(run, [ids[1 + len(made)]], Action.DROP, by="Bob")  # decisions never rest
        return found

    monkeypatch.setattr(reader, "summarise_decisions", slow)
    with ThreadPoolExecutor(9) as threads:
        decide_samples(run, [ids[0]], Action.DROP, by="Ada")
        first = threads.submit(open_results, run)
        while not made:
            sleep(0.001)
        decide_samples(run, [ids[1]], Action.DROP, by="Ada")
        others = [threads.submit(open_results, run) for _ in range(8)]
        while reader._opened[key].users < 9:  # all have come
            sleep(0.001)
        goes_on.set()
        assert set(first.result().decisions.by_sample) >= {ids[0]}
        for one in others:
            assert set(one.result().decisions.by_sample) >= set(ids[:2]), "decided before it looked"
    assert len(made) == 1, "the one that they wait for has it, whatever comes meanwhile"


def test_another_ledger_in_its_place_is_looked_up_anew(run: Path) -> None:
    ids = Run(run).images["id"].to_list()
    for sample in ids[:2]:
        Run(run).decide(sample, "drop", by="Ada")
    assert set(open_results(run).decisions.by_sample) == set(ids[:2])
    for path in run.glob("decisions.*"):
        path.unlink()
    Run(run).decide(ids[5], "drop", by="Ada")
    assert set(open_results(run).decisions.by_sample) == {ids[5]}


def test_one_picture_with_another_content_is_looked_up_as_another(reviewed_run: Path) -> None:
    known = waivers.LookedUp()
    with waivers.open_for_deciding(reviewed_run) as store:
        (name, content), *_ = store.query(
            "SELECT sample_id, content_hash FROM measurements.main.features "
            "WHERE content_hash IS NOT NULL ORDER BY sample_id"
        ).iter_rows()
        for held, found in ((content, name), ("f" * 32, None)):
            asked = pl.DataFrame({"subject": [name], "content_hash": [held]})
            assert known.resolve(store, asked)["sample_id"].to_list() == [found]
