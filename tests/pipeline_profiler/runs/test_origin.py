"""Where a run comes from: masked texts and the state of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline_profiler.runs.entry import mask_secrets, read_code

SECRET = "Zx81qP0v7Lm2Kd93Tz5Rw6Yb"


@pytest.mark.parametrize(
    "text",
    [
        f"--token={SECRET}",
        f"https://me:{SECRET}@host/run",
        f"https://host/run?api_key={SECRET}&x=1",
        f"key is {SECRET}",
        f'{{"secret": "{SECRET}"}}',
        "hf_abcdefghijklmnop",
        "Authorization: Bearer abcdefghijkl",
        "0123456789abcdef0123456789abcdef01234567",
    ],
    ids=str,
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    masked = mask_secrets(text)
    assert "***" in masked
    for secret in (SECRET, "abc", "hf_", "0123456789abcdef"):
        assert secret not in masked.replace("Bearer", "")


@pytest.mark.parametrize(
    "word",
    [
        "train_resnet50_imagenet_2024_11_22.py:make_loader",
        "/data/experiments/2026-01-02T030405/run_000123/metrics.jsonl",
        "the learning rate 0.000300 was 10 times too high",
        "InternationalizationConfigurationFactory",
        "checkpoints/epoch=12-step=40000.ckpt",
        "tokens=4",
        "s3://bucket/folder/train-00000-of-01024.tar",
    ],
)
def test_ordinary_words_stay(word: str) -> None:
    assert mask_secrets(word) == word


def test_the_state_of_the_code_is_commit_diff_and_new_files(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip

    assert read_code(tmp_path).commit == ""
    git("init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text("rate = 1\n")
    assert "+rate = 1" in read_code(tmp_path).diff  # nothing is committed yet
    git("add", ".")
    git("commit", "-q", "-m", "x")
    clean = read_code(tmp_path)
    assert (len(clean.commit), clean.diff) == (40, "")
    (tmp_path / "train.py").write_text(f"rate = 2\ntoken = '{SECRET}'\n")
    (tmp_path / "model.py").write_text("deep = True\n")
    (tmp_path / "large.bin").write_bytes(b"\0" * 1000)
    git("config", "diff.external", "touch was_run")  # a repository's settings are not obeyed
    diff = read_code(tmp_path).diff
    assert "-rate = 1" in diff
    assert "+rate = 2" in diff
    assert "new file model.py\n+deep = True" in diff
    assert SECRET not in diff
    assert not (tmp_path / "was_run").exists()
