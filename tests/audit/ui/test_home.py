"""The app of `audit serve`: the datasets that a person may see, and no page that opens a path."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from audit.interface import Run
from audit.service.datasets import PROFILES, Service, read_datasets, write_datasets
from audit.service.jobs import JobQueue
from audit.service.people import ADMIN, REVIEWER, VIEWER, Person
from audit.ui import guard
from dataset_preflight.app import all_pages, pages_of_service
from tests.audit.ui.pages import PATIENCE_S, Show, text
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, scanned: Path, tmp_path: Path) -> Service:
    """Two datasets, of which `secret` is Ada's, served to Vic."""
    for name in ("pets", "secret"):
        shutil.copytree(scanned, tmp_path / "served" / name)
    write_datasets(tmp_path / "served")
    file = tmp_path / "served/datasets.toml"
    file.write_text(file.read_text() + 'people = ["Ada"]\n')
    found = Service(tmp_path / "served")
    come(monkeypatch, found, Person("Vic", VIEWER))
    return found


def come(monkeypatch: pytest.MonkeyPatch, service: Service, person: Person) -> None:
    one = SimpleNamespace(
        api=SimpleNamespace(service=service), person=lambda cookies, headers: person
    )
    monkeypatch.setattr(guard, "_served", [one])


def rows(at: AppTest) -> list[dict[str, Any]]:
    """The lines of the home page."""
    (listing,) = [c for c in at.get("bidi_component") if '"Last scan, UTC"' in c.proto.json]
    return [one["cells"] for one in json.loads(listing.proto.json)["rows"]]


def test_home_has_a_line_for_each_dataset_of_this_person(
    show: Show, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = rows(show("home"))
    assert (line["name"], line["pictures"], line["decided"]) == ("pets", "24", "none")
    Run(service.folder / "secret").decide("train/cat/0.jpg", "keep", by="Bob")
    (service.folder / "pets/CURRENT").unlink()
    shutil.rmtree(service.folder / "pets/gen-0001")
    come(monkeypatch, service, Person("ada", REVIEWER))
    at = show("home")
    first, second = rows(at)
    assert (first["name"], first["errors"], second["decided"]) == ("pets", "", "Bob 1")
    assert "pets has no finished scan" in text(at)
    (service.folder / "datasets.toml").write_text("")
    assert "No dataset is open to you." in text(show("home"))
    (service.folder / "datasets.toml").write_text("x")
    assert "datasets.toml cannot be used" in text(show("home"))


def test_a_link_opens_no_dataset_of_others_and_no_run_beside(
    show: Show, service: Service, scanned: Path
) -> None:
    (Path.cwd() / "runs").mkdir()
    shutil.copytree(scanned, Path.cwd() / "runs/beside")
    for name in ("secret", "beside", str(scanned), "../served/secret"):
        assert "which this app was not started with" in text(show("overview", scanned, run=name))
    assert "Scanned" in text(show("overview", scanned, run="pets"))
    at = show("overview", scanned)
    at.session_state["chosen runs"] = [scanned]
    assert "24" in text(at.run())
    assert at.query_params["run"] in ("pets", ["pets"])


def test_no_page_asks_for_a_path(
    show: Show, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = set(all_pages())
    assert set(pages_of_service()) == listed - {"start", "profiles", "checks", "runs"} | {"home"}
    monkeypatch.setattr(sys, "argv", ["app.py"])
    at = AppTest.from_file(str(ROOT / "dataset_preflight/app.py"), default_timeout=PATIENCE_S).run()
    assert at.title[0].value == "Home"
    come(monkeypatch, service, Person("Ada", REVIEWER))
    for page in ("decisions", "subset"):
        at = show(page, run="pets")
        assert not [
            one.label for one in at.text_input if "older" in one.label or "ile" in one.label
        ]
    assert "Export" in [one.value for one in show("decisions", run="pets").header]


def test_an_admin_asks_for_a_scan_and_everybody_sees_it_wait(
    show: Show, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.jobs = JobQueue(service.folder, partial(read_datasets, service.folder))
    assert [one.label for one in show("home").button if "can" in one.label] == []
    come(monkeypatch, service, Person("Ann", ADMIN))
    at = show("home")
    next(one for one in at.button if one.label == "Scan").click().run(timeout=PATIENCE_S)
    assert [(job.by, job.state) for job in service.jobs.jobs()] == [("Ann", "waiting")]
    come(monkeypatch, service, Person("Vic", VIEWER))
    assert [row["work"] for row in rows(show("home"))] == ["scan waiting"]
    service.jobs.close()


def test_a_profile_is_shown_by_run_day_and_commit(show: Show, service: Service) -> None:
    sent = [
        ("2026-11-01T08:00", "a", 0.5), ("2026-11-01T09:00", "a", 0.3),
        ("2026-11-02T08:00", "a", 0.1), ("2026-11-02T09:00", "b", 0.3),
        ("2026-11-03T09:00", "b", None), ("2026-11-03T10:00", "b", 0.2),
    ]  # fmt: skip
    lines = [
        {"name": "resnet", "metric": "stall share", "received": at, "git_commit": c, "value": v}
        for at, c, v in sent
    ]
    lines.insert(2, lines[0] | {"metric": "batches a second", "value": 900})  # is no share
    (service.folder / PROFILES).write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    for by, values in (
        ("", [0.5, 0.3, 0.1, 0.3, 0.2]), ("day", [0.4, 0.2, 0.2]), ("commit", [0.3, 0.25]),
    ):  # fmt: skip
        at = show("home", by=by)
        (listing,) = [c for c in at.get("bidi_component") if '"Over time"' in c.proto.json]
        (row,) = json.loads(listing.proto.json)["rows"]
        assert row["cells"]["trend"] == pytest.approx(values)
        assert row["cells"]["value"] == "stall share 0.2"
