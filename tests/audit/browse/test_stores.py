"""The stores that are open: one a generation, with the ledger, closed when others were used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from audit.browse import findings, stores
from audit.browse.findings import FindingFilter
from audit.interface import Run


def test_stores_that_were_not_used_of_late_are_closed(
    reviewed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "KEPT", 1)
    monkeypatch.setattr(stores, "_opened", {})
    first, second = (Path(shutil.copytree(reviewed_run, tmp_path / name)) for name in "ab")
    with stores.look(first).store() as store, stores.look(second).store():
        assert store.scalar("SELECT 1") == 1  # in use by this thread
    for run in (second, first, second):
        with stores.look(run).store() as store:
            assert store.scalar("SELECT count(*) FROM samples") == 24
    assert list(stores._opened) == [stores.look(second).key]
    assert not stores.is_open(stores.look(first).key)


def test_a_look_has_the_ledger_of_its_moment(reviewed_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(reviewed_run, tmp_path / "run"))
    before = stores.look(run)
    assert stores.look(run).ledger is before.ledger  # read once
    Run(run).decide("FILE001", "false-positive", by="Ada")
    after, decided = stores.look(run), FindingFilter(status="decided")
    for seen, n in ((after, 1), (before, 0), (after, 1)):
        with seen.store() as store:
            waived = findings.count_findings(store, FindingFilter(status="waived"))
            assert findings.count_findings(store, decided) + waived == n
