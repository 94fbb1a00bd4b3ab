"""datasets.toml, who sees what, the lines of the home page, and the stores behind them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.interface import Run
from audit.results.history import HISTORY
from audit.service.datasets import DatasetLine, Service, read_datasets, write_datasets
from audit.service.people import ADMIN, VIEWER, Person
from tests.audit.service.conftest import Served


def test_init_lists_the_runs_that_the_file_lacks(reviewed_run: Path, tmp_path: Path) -> None:
    for place in ("a", "runs/b", 'runs/"ü', "runs/deep/c", "other/b"):
        shutil.copytree(reviewed_run, tmp_path / place)
    (tmp_path / "runs/empty").mkdir()
    added = write_datasets(tmp_path)
    assert [(one.name, str(one.run.relative_to(tmp_path))) for one in added] == [
        ("a", "a"), ("b", "other/b"), ('"ü', 'runs/"ü'),
    ]  # fmt: skip
    assert {one.source for one in added} == {str(reviewed_run.parent / "pets")}
    assert list(read_datasets(tmp_path).values()) == added
    file = tmp_path / "datasets.toml"
    file.write_text(file.read_text().replace('name = "a"', 'name = "first"\npeople = ["Ada"]'))
    shutil.copytree(reviewed_run, tmp_path / "runs/new")
    assert [one.name for one in write_datasets(tmp_path)] == ["new"]
    assert list(read_datasets(tmp_path)) == ["first", "b", '"ü', "new"]
    assert read_datasets(tmp_path)["first"].people == ("Ada",)


@pytest.mark.parametrize(
    "text",
    [
        "[[dataset]]\nname = 'a'", "[[dataset]]\nrun = 'a'", "[[dataset]]\nname = 'a/b'\nrun = 'r'",
        "[[dataset]]\nname = 'a'\nrun = 'r'\npeople = 'Ada'", "dataset = 3", "dataset = [3]",
        "[[dataset]]\nname = 'a'\nrun = 'r'\nevery = '1d'", "[[datasets]]", "no toml", "\udcff",
        "[[dataset]]\nname = 'a'\nrun = 'r'\n[[dataset]]\nname = 'a'\nrun = 's'",
        "[[dataset]]\nname = 'a'\nrun = 'r'\npeople = [3]",
        "[[dataset]]\nname = 'a'\nrun = 'r'\nkeep = 1", "[[dataset]]\nname = 'a'\npushed = false",
        "[[dataset]]\nname = 'a'\nrun = 'r'\npushed = true", "webhook = 'file:///x'",
        "[[dataset]]\nname = 'a'\nsource = 'r'\npushed = true",
        "[[dataset]]\nname = \"a\\n\"\nrun = 'r'",
    ],
)  # fmt: skip
def test_a_file_that_says_nonsense_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "datasets.toml").write_text(text, errors="surrogateescape")
    with pytest.raises(UsageError, match=r"datasets\.toml .*: .*\.$"):
        read_datasets(tmp_path)
    with pytest.raises(UsageError):
        Service(tmp_path)


def test_who_may_see_what_follows_the_file(served: Served) -> None:
    service, file = served.service, served.service.folder / "datasets.toml"

    def seen(name: str, role: str = VIEWER) -> list[str]:
        return list(service.datasets(Person(name, role)))

    assert seen("Vic") == ["pets"]
    assert seen("ADA") == seen("Ann", ADMIN) == ["pets", "secret", "far"]
    file.write_text(file.read_text().replace('"ada"', '"ada", "Vic"'))
    assert seen("Vic") == ["pets", "secret", "far"]
    file.unlink()
    with pytest.raises(UsageError, match="--init"):
        seen("Vic")


def test_a_line_says_how_a_dataset_fares(served: Served) -> None:
    run, service = Run(served.run), served.service
    pets = service.datasets(Person("Ann", ADMIN))["pets"]
    first = service.line(pets)
    open_ones = dict(run.findings.group_by("severity").len().iter_rows())
    assert (first.name, first.pictures) == ("pets", len(run.images))
    assert 0 < first.errors <= open_ones["error"]
    assert (first.errors_change, first.warnings_change, first.decided) == (None, None, {})
    assert first.scanned.startswith("20")
    assert service.line(pets) is first  # nothing is read again
    (moment,) = (json.loads(line) for line in (served.run / HISTORY).read_text().splitlines())
    more = moment["severities"] | {"error": moment["severities"]["error"] + 2}
    with (served.run / HISTORY).open("a") as file:
        file.write(json.dumps(moment | {"severities": more}) + "\n")
    run.decide("FILE001", "false-positive", by="Ada")
    run.decide(["train/cat/0.jpg", "train/cat/1.jpg"], "keep", by="Bob")
    run.undo(by="Bob")
    run.decide(["train/cat/0.jpg", "train/cat/1.jpg"], "keep", by="Bob")
    second = service.line(pets)
    assert (second.errors, second.warnings) == (first.errors - 1, first.warnings)
    assert (second.errors_change, second.warnings_change) == (2, 0)
    assert list(second.decided.items()) == [("Bob", 2), ("Ada", 1)]
    shutil.rmtree(served.run)
    gone = service.line(pets)
    assert "There is no run at" in gone.problem
    assert gone == DatasetLine("pets", problem=gone.problem)


def test_a_line_says_that_it_is_of_another_version_than_current(served: Served) -> None:
    assert [one["notice"] for one in served.get("/datasets")["datasets"]] == [""]
    (served.run / "CURRENT").unlink()
    (one,) = served.get("/datasets")["datasets"]
    assert one["notice"].startswith("CURRENT is missing. This is gen-0001/")
    assert (one["problem"], one["pictures"] > 0) == ("", True)
