"""Pictures in a store that speaks s3, on this machine, are read as the folder they came from."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import audit
from audit.errors import UsageError
from audit.machine.executors import Serial
from audit.scanning.scanning import scan
from audit.sources import open_source
from tests.audit.sources.packed_sets import Files, pictures, write_folder, write_parquet, write_tar

PACKAGES = Path(sys.prefix) / "store_packages"
SECRET = "wJalrXUtnFEMI-of-a-test"
FILES = pictures()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (PACKAGES / "moto").is_dir() and not os.environ.get("CI"),
        reason="needs `make test`, which installs a store beside the environment",
    ),
    # of the store's own libraries
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Store:
    """A server of s3 in a process of its own, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.log = folder / "requests.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                env={**os.environ, "PYTHONPATH": str(PACKAGES)},
                stdout=log,
                stderr=log,
            )

    def files(self) -> Any:
        """Return the store as its library sees it, once it answers."""
        import s3fs

        files = s3fs.S3FileSystem(endpoint_url=self.address, skip_instance_cache=True)
        end = time.monotonic() + 300
        while True:
            try:
                files.mkdir("bucket")
                return files
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < end, "the store did not answer"
                time.sleep(0.3)

    def asked(self) -> list[str]:
        """Return the requests so far, such as `GET /bucket/set/a.png`."""
        return re.findall(r'"(?:\x1b\[\d+m)*([A-Z]+ [^ ?]+)', self.log.read_text())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PACKAGES))
        # behind the app's own packages, which other tests of this process need as they are
        sys.path.append(sys.path.pop(0))
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key-of-a-test",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        store = Store(tmp_path_factory.mktemp("store"))
        try:
            patch.setenv("FSSPEC_S3_ENDPOINT_URL", store.address)
            import fsspec.config

            fsspec.config.set_conf_env(fsspec.config.conf)
            yield store, store.files()
        finally:
            store.process.kill()
            store.process.wait()


def look(address: str, out: Path) -> tuple[Any, audit.Run]:
    summary = scan(open_source([address]), out, executor=Serial())
    return summary, audit.open(out)


def facts(run: audit.Run) -> list[tuple[Any, ...]]:
    rows = run.sql(
        "SELECT id, split, label, n_bytes, content_hash, pixel_hash, phash FROM images ORDER BY id"
    )
    return rows.rows()


def found(run: audit.Run) -> list[str]:
    return sorted(run.findings["fingerprint"])


WRITERS: dict[str, tuple[str, Callable[[Path, Files], Path]]] = {
    "set": (".", write_folder), "tar": ("train.tar", write_tar),
    "parquet": ("train.parquet", write_parquet),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
def test_a_bucket_holds_what_the_folder_holds(
    served: tuple[Store, Any], tmp_path: Path, kind: str
) -> None:
    here, (name, write) = tmp_path / "here", WRITERS[kind]
    here.mkdir()
    write(here / name, FILES)
    for path in filter(Path.is_file, here.rglob("*")):
        served[1].pipe(f"bucket/{kind}/{path.relative_to(here)}", path.read_bytes())
    local = audit.scan(here, tmp_path / "one", jobs=1)
    _, run = look(f"s3://bucket/{kind}", tmp_path / "two")
    assert facts(run) == facts(local)
    assert len(facts(run)) == len(FILES)
    assert found(run) == found(local)
    for path in filter(Path.is_file, (tmp_path / "two").rglob("*")):
        assert SECRET.encode() not in path.read_bytes()


def test_what_is_unchanged_is_not_fetched_and_what_changed_is(
    served: tuple[Store, Any], tmp_path: Path
) -> None:
    store, files = served
    names = list(FILES)
    files.pipe({f"bucket/again/{name}": data for name, data in FILES.items()})
    look("s3://bucket/again", tmp_path / "run")
    before = len(store.asked())
    same, _ = look("s3://bucket/again", tmp_path / "run")
    assert (same.measured, same.kept) == (0, len(FILES))
    assert not [request for request in store.asked()[before:] if request.endswith(".png")]
    # other bytes of one size: told by the ETag
    changed = bytearray(FILES[names[0]])
    changed[-9] ^= 1
    files.pipe(f"bucket/again/{names[0]}", bytes(changed))
    files.rm(f"bucket/again/{names[1]}")
    before = len(store.asked())
    again, run = look("s3://bucket/again", tmp_path / "run")
    assert (again.measured, again.kept) == (1, len(FILES) - 2)
    fetched = [request for request in store.asked()[before:] if request.endswith(".png")]
    assert set(fetched) == {f"GET /bucket/again/{names[0]}"}
    assert names[1] not in run.sql("SELECT id FROM samples")["id"].to_list()


def test_a_bucket_that_is_not_there_is_a_sentence(served: tuple[Store, Any]) -> None:
    with pytest.raises(UsageError, match="s3://nobucket/set"):
        open_source(["s3://nobucket/set"])
