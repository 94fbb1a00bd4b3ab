"""Loaders nobody knows: generators, sequences, and a real third-party one."""

import io
import tarfile
from pathlib import Path

import pytest

from pipeline_profiler import Recorder
from pipeline_profiler.profiling.adapters import iterable, kind_of
from pipeline_profiler.profiling.diagnose.window import Window


def test_a_generator_is_watched_and_known_to_be_used_up_once() -> None:
    rows = (i for i in range(5))
    assert kind_of(rows) == "iterable"
    assert iterable.describe(rows)["one_shot"]
    assert not iterable.describe([1, 2])["one_shot"]
    rec = Recorder()
    assert list(rec.watch(rows)) == [0, 1, 2, 3, 4]
    assert len(Window.of(rec.session().runs[0]).steps.batch) == 5


# webdataset leaves its shard files to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_webdataset_pipeline_is_watched(tmp_path: Path) -> None:
    import webdataset as wds

    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(12):
            info = tarfile.TarInfo(f"{i:03d}.txt")
            info.size = 2
            tar.addfile(info, io.BytesIO(b"%02d" % i))
    loader = wds.WebDataset(str(path), shardshuffle=False).decode().batched(4)
    rec = Recorder()
    keys = [key for batch in rec.watch(loader) for key in batch["__key__"]]
    assert len(keys) == 12
    run = rec.session().runs[0]
    assert len(Window.of(run).steps.batch) == 3
    assert "webdataset" in run.config["type"]
