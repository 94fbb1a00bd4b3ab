"""The summary of a tracker's run: told where one is active, and never in the training's way."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.profiling.watching.trackers import is_tracked, tell_trackers
from tests.pipeline_profiler.fakes import made_run, schedule

SLOW = Session([made_run(schedule(60, 1, 1, 10.0, lambda i: 30.0), workers=1, prefetch=1)])


def test_without_an_active_run_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=None))
    assert not is_tracked()
    tell_trackers(SLOW)


def test_an_active_run_gets_verdict_share_and_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    summary: dict[str, Any] = {}
    run = SimpleNamespace(summary=summary)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    tell_trackers(SLOW)
    assert summary["pipeline_profiler/verdict"] == "input-bound high"
    assert summary["pipeline_profiler/wait_share"] == pytest.approx(2 / 3, abs=0.05)
    assert summary["pipeline_profiler/first_cause"].startswith("PIPE")
    assert SLOW.results == {}  # the session itself is left as it was


def test_a_tracker_that_fails_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(facts: object) -> None:
        raise ConnectionError("no network")

    run = SimpleNamespace(summary=SimpleNamespace(update=refuse))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    tell_trackers(SLOW)


def test_a_real_mlflow_run_has_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # no server and no database here
    mlflow.set_tracking_uri(f"file:{tmp_path}/runs")
    with mlflow.start_run() as run:
        tell_trackers(SLOW)
    stored = mlflow.get_run(run.info.run_id).data
    assert stored.tags["pipeline_profiler/verdict"] == "input-bound high"
    assert stored.metrics["pipeline_profiler/steps"] == 60


def test_a_real_run_of_wandb_has_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=tmp_path, project="p")
    tell_trackers(SLOW)
    assert run.summary["pipeline_profiler/verdict"] == "input-bound high"
    wandb.finish()
