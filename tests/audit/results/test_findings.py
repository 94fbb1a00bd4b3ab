"""The list of findings: order, filters, pages, neighbours and statuses, on a scanned dataset."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from audit.decisions import decisions, keeper_rules
from audit.decisions.store import DecisionStore
from audit.records import Action
from audit.report import collect_report
from audit.results import decision_summary, findings
from audit.results.distributions import class_by_split, label_table, shown_classes
from audit.results.finding_index import index_findings, mark_statuses
from audit.results.findings import FindingFilter
from audit.results.results import Results, open_results
from audit.run import run_version


@pytest.fixture(scope="module")
def run(reviewed_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(reviewed_run, tmp_path_factory.mktemp("reviewed") / "run"))


@pytest.fixture
def results(run: Path) -> Results:
    return open_results(run)


def settle(results: Results, statuses: list[tuple[str, str]]) -> None:
    """Give findings statuses as decisions would."""
    with results.connection(index_findings) as store:
        mark_statuses(store, statuses)


def all_rows(results: Results, asked: FindingFilter, size: int = 3) -> list[findings.Row]:
    """Every finding, page after page."""
    page = findings.page(results, asked, size=size)
    rows = list(page.rows)
    while page.after:
        page = findings.page(results, asked, start=page.rows[-1].place + 1, size=size)
        rows += page.rows
    return rows


def test_pages_give_every_finding_once_in_each_order(results: Results) -> None:
    rows = all_rows(results, FindingFilter())
    assert (
        len(rows) == results.findings().height == findings.count_findings(results, FindingFilter())
    )
    assert len({row.fingerprint for row in rows}) == len(rows)
    by_severity = all_rows(results, FindingFilter(order="severity"))
    ranks = [row.severity.rank for row in by_severity]
    assert ranks == sorted(ranks)
    codes = [row.code for row in all_rows(results, FindingFilter(order="code"))]
    assert codes == sorted(codes)
    families = list(dict.fromkeys(row.code for row in rows))
    assert families != sorted(families)
    first = findings.first_steps(results)[0]
    assert rows[0].code in first.codes


def test_pages_go_back_as_they_came(results: Results) -> None:
    first = findings.page(results, FindingFilter(), size=3)
    second = findings.page(results, FindingFilter(), start=first.rows[-1].place + 1, size=3)
    back = findings.page(results, FindingFilter(), start=second.rows[0].place, back=True, size=3)
    assert back.rows == first.rows
    assert (first.before, back.before, second.before, back.after) == (False, False, True, True)


def test_filters_agree_with_their_counts(results: Results) -> None:
    for column, field in (("code", "codes"), ("severity", "severity"), ("splits", "split"),
                          ("labels", "label")):  # fmt: skip
        for value, n in findings.facet(results, FindingFilter(), column).items():
            asked = FindingFilter(**{field: (value,) if field == "codes" else value})
            assert len(all_rows(results, asked)) == n, (column, value)


def test_a_code_may_be_a_family(results: Results) -> None:
    codes = {row.code for row in all_rows(results, FindingFilter(codes=("DUP", "SPLIT001")))}
    assert codes == {"DUP001", "DUP003", "SPLIT001"}


def test_search_looks_at_names_and_messages(results: Results) -> None:
    assert {row.code for row in all_rows(results, FindingFilter(text="DARK.jpg"))} == {"IMG001"}
    assert findings.count_findings(results, FindingFilter(text="no such thing")) == 0


def test_neighbours_walk_the_filtered_list(results: Results) -> None:
    asked = FindingFilter(codes=("DUP001",))
    rows = all_rows(results, asked)
    for row, following in pairwise(rows):
        assert findings.neighbour(results, asked, row.place) == following.fingerprint
        assert findings.neighbour(results, asked, following.place, back=True) == row.fingerprint
    assert findings.neighbour(results, asked, rows[-1].place) is None


def test_an_opened_finding_has_its_samples_in_order(results: Results) -> None:
    row = next(r for r in all_rows(results, FindingFilter(codes=("SPLIT001",))))
    found = findings.open_finding(results, row.fingerprint)
    assert found is not None
    assert [card.id for card in found.members] == list(found.finding.sample_ids)
    assert {card.split for card in found.members} == {"train", "test"}
    assert all(card.width and card.content_hash for card in found.members)
    several = [
        r.fingerprint for r in all_rows(results, FindingFilter(codes=("SPLIT001", "DUP001")))
    ]
    opened = {one: findings.open_finding(results, one) for one in several}
    assert findings.members_of(results, several) == {
        one: list(found.members[:8]) for one, found in opened.items() if found is not None
    }
    assert findings.members_of(results, []) == {}
    assert findings.open_finding(results, "f" * 16) is None
    assert findings.place_of(results, "f" * 16) is None


def test_the_ledger_moves_findings_between_statuses(run: Path, results: Results) -> None:
    dark = all_rows(results, FindingFilter(codes=("IMG001",)))[0].fingerprint
    before = findings.count_findings(results, FindingFilter(status="open"))
    decisions.decide_findings(run, [dark], Action.FALSE_POSITIVE, by="tester")
    said = open_results(run).decisions
    assert findings.count_findings(results, FindingFilter(status="waived")) == 1
    assert findings.count_findings(results, FindingFilter(status="open")) == before - 1
    assert said.last is not None
    assert said.last.verb is Action.FALSE_POSITIVE
    DecisionStore(run).undo(by="tester")
    again = open_results(run).decisions
    assert findings.count_findings(results, FindingFilter(status="open")) == before
    assert again.last is None
    assert again.revision != said.revision


def test_what_a_rule_dropped_shows_beside_the_samples(run: Path) -> None:
    done = keeper_rules.apply_rule(run, keeper_rules.propose(run, "DUP001"), by="tester")
    dropped = {d.subject for d in done if d.kind == "sample"}
    said = decision_summary.summarise_decisions(run, run_version.require(run))
    assert dropped
    assert {name for name, words in said.by_sample.items() if words == "drop"} == dropped
    DecisionStore(run).undo(by="tester")


def test_first_steps_are_those_of_the_report_and_each_is_in_its_list(
    results: Results, run: Path
) -> None:
    steps = findings.first_steps(results)
    assert [step.name for step in steps] == [one.name for one in collect_report(run).first]
    assert "leaked" in [step.name for step in steps]
    for step in steps:
        listed = all_rows(results, FindingFilter(codes=step.codes[:1], status="open"))
        assert step.fingerprint in {row.fingerprint for row in listed}


def test_first_steps_and_counts_leave_out_what_is_settled(
    reviewed_run: Path, tmp_path: Path
) -> None:
    results = open_results(Path(shutil.copytree(reviewed_run, tmp_path / "run")))
    rows = all_rows(results, FindingFilter())
    assert _progress(results) == (len(rows), len(rows))
    assert findings.count_files_left(results) > 0
    worst = findings.first_steps(results)[0]
    settle(results, [(worst.fingerprint, "decided")])
    assert _progress(results) == (len(rows), len(rows) - 1)
    assert worst.fingerprint not in {step.fingerprint for step in findings.first_steps(results)}
    # The last one of a check counts as much as its first.
    settle(results, [(row.fingerprint, "decided") for row in rows[:-1]])
    assert _progress(results) == (len(rows), 1)
    settle(results, [(row.fingerprint, "waived") for row in rows])
    assert findings.first_steps(results) == ()
    assert findings.count_files_left(results) == 0
    assert _progress(results) == (len(rows), 0)


def _progress(results: Results) -> tuple[int, int]:
    """How many findings there are and are open, by code."""
    parts = findings.count_progress(results, "code").values()
    return sum(p.total for p in parts), sum(p.open for p in parts)


def test_by_severity_a_fault_that_two_checks_see_counts_once(results: Results, run: Path) -> None:
    counts = collect_report(run).counts
    open_ones = {s: p.open for s, p in findings.count_progress(results, "severity").items()}
    assert open_ones == {s.value: n for s, n in counts.items() if n}
    assert sum(open_ones.values()) < _progress(results)[1]


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
