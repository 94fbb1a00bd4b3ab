"""Tags: given, taken away, undone, followed to where a file moved; and they decide nothing."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import audit
from audit.decisions.decisions import (
    count_tags,
    decide_findings,
    decide_samples,
    parse_verb,
    select_samples,
    stale_tags,
    tagged_samples,
)
from audit.decisions.store import DecisionStore, Entry
from audit.decisions.waivers import apply_decisions
from audit.errors import UsageError
from audit.exports.export import export_tables
from audit.records import Action
from tests.audit.conftest import Command
from tests.audit.reviewed import findings

pytestmark = pytest.mark.slow


def two_samples(run: Path) -> list[str]:
    return audit.open(run).kept()["id"].to_list()[:2]


def test_a_sample_holds_any_number_of_tags_and_an_undo_takes_one_batch_back(run: Path) -> None:
    one, two = two_samples(run)
    decide_samples(run, [one, two], Action.TAG, "night")
    decide_samples(run, [one], Action.TAG, "ask Ana")
    assert tagged_samples(run).rows() == [(one, "ask Ana"), (one, "night"), (two, "night")]
    assert count_tags(run).rows() == [("night", 2), ("ask Ana", 1)]
    decide_samples(run, [one], Action.UNTAG, "night")
    assert tagged_samples(run).rows() == [(one, "ask Ana"), (two, "night")]
    DecisionStore(run).undo()
    assert count_tags(run).rows() == [("night", 2), ("ask Ana", 1)]


def test_a_tag_decides_nothing(run: Path) -> None:
    one, two = two_samples(run)
    decide_samples(run, [one], Action.DROP)
    before = apply_decisions(run)
    decide_findings(run, ["DUP001"], Action.TAG, "night")
    decide_samples(run, [one, two], Action.TAG, "night")
    after = apply_decisions(run)
    assert after.effective.equals(before.effective)
    assert after.settled.equals(before.settled)
    tagged = set(tagged_samples(run)["id"])
    assert tagged >= {one, two}
    assert tagged >= {i for ids in findings(run, "DUP001").values() for i in ids}


def test_a_tag_follows_a_file_and_goes_with_its_content(run: Path) -> None:
    one, _ = two_samples(run)
    (entry,) = decide_samples(run, [one], Action.TAG, "night")
    assert entry.content_hash
    DecisionStore(run).undo()
    # given to content that this sample does not have
    DecisionStore(run).record([Entry("sample", one, "0" * 64, Action.TAG, "night")])
    assert tagged_samples(run).is_empty()
    DecisionStore(run).record(
        [Entry("sample", "gone.jpg", entry.content_hash, Action.TAG, "night")]
    )
    assert tagged_samples(run).rows() == [(one, "night")]
    decide_samples(run, [one], Action.UNTAG, "night")  # given by the name of before the move
    assert tagged_samples(run).is_empty()


def test_a_tag_whose_content_is_gone_is_said_until_it_is_said_again(
    run: Path, command: Command
) -> None:
    one, two = two_samples(run)
    assert stale_tags(run).is_empty()
    old = "0" * 64  # what the sample held before it was edited
    DecisionStore(run).record([Entry("sample", one, old, Action.TAG, "night")])
    DecisionStore(run).record([Entry("sample", two, old, Action.TAG, "fog")])
    DecisionStore(run).record([Entry("sample", two, old, Action.UNTAG, "fog")])
    (decision,) = stale_tags(run)["decision"]
    code, out, _ = command("decide", run, "--stale")
    assert (code, out.count("[stale: ")) == (0, 1)
    assert f"{decision}  " in out
    _, _, err = command("decide", run, "--tags")
    assert "1 tag stale" in err
    decide_samples(run, [one], Action.TAG, "night")
    assert stale_tags(run).is_empty()
    assert tagged_samples(run).rows() == [(one, "night")]


def test_tags_are_asked_for_in_sql_and_exported(run: Path, tmp_path: Path) -> None:
    one, two = two_samples(run)
    assert "tags" not in audit.open(run).kept().columns
    decide_samples(run, [one], Action.TAG, "night")
    decide_samples(run, [one, two], Action.TAG, "fog")
    assert select_samples(run, "id IN (SELECT id FROM tags WHERE tag = 'fog')") == sorted(
        [one, two]
    )
    export_tables(run, tmp_path / "out")
    table = pl.read_csv(tmp_path / "out" / "manifest.csv").select("id", "tags")
    assert dict(table.rows())[one] == "fog; night"
    assert table["tags"].null_count() == table.height - 2
    assert audit.open(run).tags.rows() == tagged_samples(run).rows()


@pytest.mark.parametrize("name", ["", " ", "a;b", "a\nb", "x" * 81])
def test_what_is_no_tag_is_refused(run: Path, name: str) -> None:
    with pytest.raises(UsageError):
        parse_verb(f"tag:{name}")
    with pytest.raises(UsageError):
        decide_samples(run, two_samples(run), Action.TAG, name)
    assert DecisionStore(run).log() == []


def test_the_commands_tag_and_count(run: Path, command: Command) -> None:
    one, _ = two_samples(run)
    code, _, err = command("decide", run, "--tags")
    assert code == 0
    assert "No sample has a tag" in err
    code, _, err = command("decide", run, one, "--as", "tag:night")
    assert (code, "Recorded 1 decision" in err) == (0, True)
    assert "nearest" not in err  # a new tag is no slip
    code, out, _ = command("decide", run, "--where", "true", "--as", "tag:all")
    assert (code, "tag:all: " in out) == (0, True)
    code, out, _ = command("decide", run, "--tags", "--json")
    assert (code, json.loads(out)) == (0, {"night": 1})
    code, out, _ = command("decide", run, "--tags")
    assert out.split() == ["1", "night"]
