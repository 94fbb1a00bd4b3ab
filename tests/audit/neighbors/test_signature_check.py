"""When a scan may trust that every picture of the generation before has its signature stored."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.neighbors.pairs.signature_store import PUBLISHED_WITH, signed_pictures
from audit.picture.measure import feature_columns
from audit.run import run_version
from audit.run.store import Store
from audit.scanning import scanning
from tests.audit.run.scanned import N_FILES, scan_tree
from tests.conftest import make_tree

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    scan_tree(make_tree(folder / "pets"), folder / "run")
    return folder


@pytest.fixture
def run(scanned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scanned / "run", tmp_path / "run"))


@pytest.fixture
def building() -> Iterator[Store]:
    with Store.memory() as store:
        store.create_measurements(feature_columns(()))
        yield store


def signed(building: Store, run: Path) -> int | None:
    """How many pictures were counted as signed; None where all of before were."""
    if not building.attached:
        building.attach(run_version.require(run).measurements, "previous")
    found = signed_pictures(building, run)
    return None if found is None else len(found)


def test_the_parts_of_when_it_was_published_need_no_look_at_each_picture(
    building: Store, run: Path
) -> None:
    found = signed_pictures(building, run)  # without a version before
    assert found is not None
    assert len(found) == N_FILES
    assert signed(building, run) is None


def test_parts_that_are_damaged_gone_or_new_are_looked_into(building: Store, run: Path) -> None:
    (part,) = (run / "signatures").iterdir()
    content = part.read_bytes()
    part.with_stem("another").write_bytes(content)
    assert signed(building, run) == N_FILES
    part.with_stem("another").unlink()
    part.unlink()
    assert signed(building, run) == 0
    part.write_bytes(content)
    assert signed(building, run) is None
    part.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    assert signed(building, run) == 0


def test_rows_of_an_unfinished_scan_are_looked_into(building: Store, run: Path) -> None:
    building.append("features", [{"sample_id": "new.jpg", "content_hash": "a" * 64}])
    assert signed(building, run) == N_FILES


def test_parts_that_no_picture_needs_change_nothing(scanned: Path, run: Path) -> None:
    (part,) = (run / "signatures").iterdir()
    part.with_stem("another").write_bytes(b"a part of a scan that was killed")
    assert scan_tree(scanned / "pets", run) == []
    assert len(run_version.list_versions(run)) == 1


def test_a_run_that_names_no_parts_is_looked_into(
    scanned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "PUBLISHED_WITH", "other_fact")
    scan_tree(scanned / "pets", tmp_path / "run")
    with run_version.open_run(tmp_path / "run") as store:
        assert PUBLISHED_WITH not in store.meta()
    assert scan_tree(scanned / "pets", tmp_path / "run") == []
    assert len(run_version.list_versions(tmp_path / "run")) == 1
