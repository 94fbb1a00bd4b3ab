"""Links that name what is decided by now, or gone: the page says so, and shows what there is."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from audit.browse import findings as browse
from audit.decisions import decisions
from audit.records import Action
from audit.run import generations
from tests.audit.reviewed import findings
from tests.audit.ui.pages import Show, text

pytestmark = pytest.mark.slow
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
    with closing(generations.open_generation(generations.require(run))) as store:
        browse.index(store)
        return str(store.scalar(f"SELECT arg_max(fingerprint, place) FROM {browse.INDEX}"))


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
