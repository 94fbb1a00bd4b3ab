"""Logs: what is read of each form, known values, and how often noise alone is failed."""

import struct
from pathlib import Path

import numpy as np
import pytest

from pipeline_profiler.checks.chance import FAR, neighbour_score, order_score
from pipeline_profiler.checks.log.curves import CHANCE, spectral_peak
from pipeline_profiler.checks.log_subject import Series, error_of_mean, read_log, read_logs
from pipeline_profiler.cli.main import command_line
from pipeline_profiler.profiling.record.errors import ProfileError


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_correlated_noise_has_the_stated_chance_and_error(share: float) -> None:
    rng, fall = np.random.default_rng(1), 5 * np.exp(-np.arange(512) / 100)
    weights = share ** np.arange(100) * np.sqrt(1 - share**2)
    rows = [np.convolve(rng.normal(size=611), weights, "valid") for _ in range(200)]
    chances = np.array([spectral_peak(fall + 0.2 * row).chance for row in rows])
    assert (chances < 0.1).mean() < 0.2
    assert chances.min() >= CHANCE
    errors = np.mean([error_of_mean(row, 5) for row in rows])
    assert 0.9 < errors / np.std([row[-5:].mean() for row in rows]) < 2.5


@pytest.mark.parametrize("seed", [1, 6, 36])
def test_a_repeated_order_is_named_by_its_epoch_and_no_harmonic(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most of the power of an order that repeats lies in harmonics of the epoch."""
    rng, steps = np.random.default_rng(seed), np.arange(1200)
    loss = 2 * np.exp(-steps / 400) + np.tile(0.2 * rng.normal(size=60), 20)
    loss += 0.1 * rng.normal(size=1200)
    rows = "".join(f"{step},{step // 60},{loss[step]}\n" for step in steps)
    (tmp_path / "a.csv").write_text("step,epoch,loss\n" + rows)
    assert command_line(["check", str(tmp_path / "a.csv"), "--only", "LOG001"]) == 1
    assert "a period of 60 steps, once an epoch" in " ".join(capsys.readouterr().out.split())


def event(step: int, as_tensor: bool = False) -> bytes:
    def chunk(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    number = struct.pack("<f", step / 2)
    tensor = chunk(8, bytes([1 << 3, 1]) + chunk(4, number))
    value = tensor if as_tensor else bytes([2 << 3 | 5]) + number
    summary = chunk(1, chunk(1, b"loss") + value)
    body = bytes([1 << 3 | 1]) + struct.pack("<d", 0.0) + bytes([2 << 3, step]) + chunk(5, summary)
    return struct.pack("<Q", len(body)) + b"crc4" + body + b"crc4"


@pytest.mark.parametrize("as_tensor", [False, True])
def test_event_files_of_a_folder_are_read_up_to_half_a_record(
    tmp_path: Path, as_tensor: bool
) -> None:
    for number in range(2):
        whole = b"".join(event(3 * number + step, as_tensor) for step in range(3))
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(whole + event(5, as_tensor)[:-9])
    (series,) = read_log(str(tmp_path))
    assert (series.name, series.steps.tolist()) == ("loss", [0, 1, 2, 3, 4, 5])
    assert series.values.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "step,loss,note,wall_time\n10,1,x,0\n20,0.5,x,60\n"),
        ("a.csv", "   epoch,  loss, time\n 10, 1, 0\n 20, 0.5, 60\n"),  # of ultralytics
        ("a.jsonl", '{"step": 10, "loss": 1, "n": "x", "time": 0}\n\n'
         '{"step": 20, "loss": 0.5, "n": [], "time": 60}\n'),
    ],
)  # fmt: skip
def test_csv_and_json_lines_give_the_same_series(tmp_path: Path, name: str, text: str) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    first, second = read_logs([str(tmp_path / folder / name) for folder in ("a", "b")])
    assert (first.title, second.title) == (f"loss of a/{name}", f"loss of b/{name}")
    assert (first.steps.tolist(), first.values.tolist()) == ([10, 20], [1, 0.5])
    assert first.seconds is not None
    assert first.seconds.tolist() == [0, 60]


@pytest.mark.parametrize("content", ["", "a,b\nx,y\n", "[1, 2]", '{"a": \n'])
def test_a_file_without_numbers_is_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "log.csv").write_text(content)
    with pytest.raises(ProfileError):
        read_log(str(tmp_path / "log.csv"))
    with pytest.raises(ProfileError, match="a folder of event files"):
        read_log(str(tmp_path))


def test_the_command_names_a_folder_that_keeps_the_last_checkpoint_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "metrics.csv")
    score = [0.9 - 0.7 * 0.8**i - 0.03 * max(0, i - 15) + 0.002 * (-1) ** i for i in range(30)]
    rows = "".join(f"{100 * i},{i},{value}\n" for i, value in enumerate(score))
    Path(log).write_text("step,epoch,val_acc\n" + rows)
    for name in ("last.pt", "checkpoints/epoch=29.ckpt", "checkpoint-2900/model.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert command_line(["check", log, "--only", "LOG005"]) == 1
    named = "(checkpoint-2900, epoch=29.ckpt, last.pt)"
    assert f"no checkpoint is of it {named}" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "best.pt").touch()
    assert command_line(["check", log, "--only", "LOG005"]) == 0


@pytest.mark.parametrize(
    ("name", "sign", "held_out"),
    [
        ("train/loss", -1, False), ("val_accuracy", 1, True), ("evalLoss", -1, True),
        ("test/top-1", 1, True), ("lr", 0, False), ("glossary", 0, False), ("valMSE", -1, True),
        ("Validation mAP", 1, True), ("grad_norm", 0, False), ("box_loss", -1, False),
    ],
)  # fmt: skip
def test_names_show_what_is_better(name: str, sign: int, held_out: bool) -> None:
    series = Series(name, np.arange(2.0), np.arange(2.0))
    assert (series.sign, series.is_held_out) == (sign, held_out)


def test_random_orders_stay_far_from_the_bound_and_orders_of_the_storage_are_beyond() -> None:
    rng = np.random.default_rng(0)
    scores = [order_score(rng.permutation(200).tolist()) for _ in range(2000)]
    assert abs(np.std(scores) - 1) < 0.06  # the null has deviation 1, as the bound assumes
    assert np.abs(scores).max() < FAR
    labels = [rng.choice(4, 128, p=[0.7, 0.1, 0.1, 0.1]) for _ in range(60)]
    assert max(neighbour_score(row)[0] for row in labels) < 4.5
    assert order_score(range(100)) > 9
    assert neighbour_score(np.repeat(np.arange(4), 32))[0] > 20
