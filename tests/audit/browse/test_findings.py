"""The list of findings: order, filters, pages, neighbours and statuses, on a scanned dataset."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from audit.browse import decided, findings, overview
from audit.browse.distributions import class_by_split, label_table, shown_classes
from audit.browse.findings import FindingFilter
from audit.decisions import decisions, keeper_rules
from audit.decisions.ledger import Ledger
from audit.records import Action
from audit.report import collect_report
from audit.run import generations
from audit.run.store import Store


@pytest.fixture(scope="module")
def run(reviewed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(reviewed_run, tmp_path_factory.mktemp("reviewed") / "run"))


@pytest.fixture
def store(run: Path) -> Iterator[Store]:
    with generations.open_run(run) as opened:
        findings.index(opened)
        yield opened


def all_rows(store: Store, asked: FindingFilter, size: int = 3) -> list[findings.Row]:
    """Every finding, page after page."""
    page = findings.page(store, asked, size=size)
    rows = list(page.rows)
    while page.after:
        page = findings.page(store, asked, start=page.rows[-1].place + 1, size=size)
        rows += page.rows
    return rows


def test_pages_give_every_finding_once_the_gravest_first_and_go_back(store: Store) -> None:
    rows = all_rows(store, FindingFilter())
    assert (
        len(rows)
        == store.scalar("SELECT count(*) FROM findings")
        == findings.count_findings(store, FindingFilter())
    )
    assert len({row.fingerprint for row in rows}) == len(rows)
    ranks = [row.severity.rank for row in rows]
    assert ranks == sorted(ranks)
    first = findings.page(store, FindingFilter(), size=3)
    second = findings.page(store, FindingFilter(), start=first.rows[-1].place + 1, size=3)
    back = findings.page(store, FindingFilter(), start=second.rows[0].place, back=True, size=3)
    assert back.rows == first.rows
    assert (first.before, back.before, second.before, back.after) == (False, False, True, True)
    asked = FindingFilter(codes=("DUP001",))  # neighbours walk the filtered list
    rows = all_rows(store, asked)
    for row, following in pairwise(rows):
        assert findings.neighbour(store, asked, row.place) == following.fingerprint
        assert findings.neighbour(store, asked, following.place, back=True) == row.fingerprint
    assert findings.neighbour(store, asked, rows[-1].place) is None


def test_filters_agree_with_their_counts(store: Store) -> None:
    for column, field in (("code", "codes"), ("severity", "severity"), ("splits", "split"),
                          ("labels", "label")):  # fmt: skip
        for value, n in findings.facet(store, FindingFilter(), column).items():
            asked = FindingFilter(**{field: (value,) if field == "codes" else value})
            assert len(all_rows(store, asked)) == n, (column, value)
    families = all_rows(store, FindingFilter(codes=("DUP", "SPLIT001")))
    assert {row.code for row in families} == {"DUP001", "DUP003", "SPLIT001"}
    # a search looks at names and messages
    assert {row.code for row in all_rows(store, FindingFilter(text="DARK.jpg"))} == {"IMG001"}
    assert findings.count_findings(store, FindingFilter(text="no such thing")) == 0


def test_an_opened_finding_has_its_samples_in_order(store: Store) -> None:
    row = next(r for r in all_rows(store, FindingFilter(codes=("SPLIT001",))))
    found = findings.open_finding(store, row.fingerprint)
    assert found is not None
    assert [card.id for card in found.members] == list(found.finding.sample_ids)
    assert {card.split for card in found.members} == {"train", "test"}
    assert all(card.width and card.content_hash for card in found.members)
    several = [r.fingerprint for r in all_rows(store, FindingFilter(codes=("SPLIT001", "DUP001")))]
    opened = {one: findings.open_finding(store, one) for one in several}
    assert findings.members_of(store, several) == {
        one: list(found.members[:8]) for one, found in opened.items() if found is not None
    }
    assert findings.members_of(store, []) == {}
    assert findings.open_finding(store, "f" * 16) is None
    assert findings.place_of(store, "f" * 16) is None


def test_the_ledger_moves_findings_between_statuses(run: Path, store: Store) -> None:
    generation = generations.require(run)
    dark = all_rows(store, FindingFilter(codes=("IMG001",)))[0].fingerprint
    before = findings.count_findings(store, FindingFilter(status="open"))
    decisions.decide_findings(run, [dark], Action.FALSE_POSITIVE, by="tester")
    said = decided.summarise_ledger(run, generation)
    findings.mark(store, said.statuses)
    assert findings.count_findings(store, FindingFilter(status="waived")) == 1
    assert findings.count_findings(store, FindingFilter(status="open")) == before - 1
    assert said.last is not None
    assert said.last.verb is Action.FALSE_POSITIVE
    Ledger(run).undo(by="tester")
    again = decided.summarise_ledger(run, generation)
    findings.mark(store, again.statuses)
    assert findings.count_findings(store, FindingFilter(status="open")) == before
    assert again.last is None
    assert again.revision != said.revision


def test_what_a_rule_dropped_shows_beside_the_samples(run: Path) -> None:
    done = keeper_rules.apply_rule(run, keeper_rules.propose(run, "DUP001"), by="tester")
    dropped = {d.subject for d in done if d.kind == "sample"}
    said = decided.summarise_ledger(run, generations.require(run))
    assert dropped
    assert {name for name, words in said.by_sample.items() if words == "drop"} == dropped
    Ledger(run).undo(by="tester")


def test_first_steps_are_those_of_the_report_and_each_is_in_its_list(
    store: Store, run: Path
) -> None:
    steps = overview.first_steps(store)
    assert [step.name for step in steps] == [one.name for one in collect_report(run).first]
    assert "leaked" in [step.name for step in steps]
    for step in steps:
        listed = all_rows(store, FindingFilter(codes=step.codes[:1], status="open"))
        assert step.fingerprint in {row.fingerprint for row in listed}


def test_first_steps_and_counts_leave_out_what_is_settled(store: Store) -> None:
    rows = all_rows(store, FindingFilter())
    assert _progress(store) == (len(rows), len(rows))
    assert overview.count_files_left(store) > 0
    worst = overview.first_steps(store)[0]
    findings.mark(store, [(worst.fingerprint, "decided")])
    assert _progress(store) == (len(rows), len(rows) - 1)
    assert worst.fingerprint not in {step.fingerprint for step in overview.first_steps(store)}
    # The last one of a check counts as much as its first.
    findings.mark(store, [(row.fingerprint, "decided") for row in rows[:-1]])
    assert _progress(store) == (len(rows), 1)
    findings.mark(store, [(row.fingerprint, "waived") for row in rows])
    assert overview.first_steps(store) == ()
    assert overview.count_files_left(store) == 0
    assert _progress(store) == (len(rows), 0)


def _progress(store: Store) -> tuple[int, int]:
    """How many findings there are and are open, by code."""
    parts = overview.count_progress(store, "code").values()
    return sum(p.total for p in parts), sum(p.open for p in parts)


def test_by_severity_a_fault_that_two_checks_see_counts_once(store: Store, run: Path) -> None:
    counts = collect_report(run).counts
    open_ones = {s: p.open for s, p in overview.count_progress(store, "severity").items()}
    assert open_ones == {s.value: n for s, n in counts.items() if n}
    assert sum(open_ones.values()) < _progress(store)[1]


def test_the_class_table_adds_up_and_a_split_may_be_called_as_the_column_of_classes(
    run: Path,
) -> None:
    data = collect_report(run).dataset
    table = label_table(data)
    assert table["files"].sum() == data.n_samples
    assert table.group_by("split").agg(s=table["share"].sum())["s"].is_not_null().all()
    drawn, said = shown_classes(table)
    assert (drawn.equals(table), said) == (True, "")
    odd = table.with_columns(split=table["split"].replace("train", "class"))
    wide = class_by_split(odd)
    assert wide.columns[0] == "name of the class"
    assert wide["class"].sum() == table.filter(split="train")["files"].sum()
    assert class_by_split(table).columns[0] == "class"
