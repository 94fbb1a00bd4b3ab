"""Logs: what is read of each form, known values, and how often noise alone is failed."""

import struct
from pathlib import Path

import numpy as np
import pytest

from pipeline_profiler.checks.chance import (
    FAR,
    neighbour_score,
    order_score,
)
from pipeline_profiler.checks.check import Judgement
from pipeline_profiler.checks.log.curves import CHANCE, Periodic
from pipeline_profiler.checks.log.evaluations import (
    ChosenBest,
    expected_luck,
)
from pipeline_profiler.checks.log_subject import (
    LogSubject,
    Series,
    better_is,
    checkpoints_beside,
    error_of_mean,
    is_held_out,
    noise_of,
    read_log,
    read_logs,
    smoothed,
    spectral_peak,
)
from pipeline_profiler.cli.main import command_line
from pipeline_profiler.profiling.record.errors import ProfileError


def correlated(rng: np.random.Generator, count: int, share: float) -> np.ndarray:
    noise, values = rng.normal(size=count), np.zeros(count)
    for i in range(1, count):
        values[i] = share * values[i - 1] + noise[i]
    return values * np.sqrt(1 - share**2)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_the_stated_chance_is_kept_for_noise_on_a_falling_loss(share: float) -> None:
    rng, fall = np.random.default_rng(1), 5 * np.exp(-np.arange(512) / 100)
    losses = [fall + 0.2 * correlated(rng, 512, share) for _ in range(200)]
    chances = np.array([spectral_peak(loss).chance for loss in losses])
    assert (chances < 0.01).mean() <= 0.025
    assert (chances < 0.1).mean() < 0.2
    assert chances.min() >= CHANCE


@pytest.mark.parametrize("seed", [1, 6, 36])
def test_a_repeated_order_is_named_by_its_epoch_and_no_harmonic(seed: int) -> None:
    """Most of the power of an order that repeats lies in harmonics of the epoch."""
    rng, steps = np.random.default_rng(seed), np.arange(1200.0)
    loss = 2 * np.exp(-steps / 400) + np.tile(0.2 * rng.normal(size=60), 20)
    loss += 0.1 * rng.normal(size=1200)
    epoch = Series("epoch", steps, np.floor(steps / 60))
    answer = Periodic().run(LogSubject([Series("loss", steps, loss), epoch]))
    assert answer.judgement is Judgement.FAIL
    assert "a period of 60 steps, once an epoch" in answer.sentence


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
    assert checkpoints_beside([log, log]) == []
    assert command_line(["check", log, "--only", "LOG005"]) == 1
    named = "(checkpoint-2900, epoch=29.ckpt, last.pt)"
    assert f"no checkpoint is of it {named}" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "best.pt").touch()
    assert command_line(["check", log, "--only", "LOG005"]) == 0


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
def test_event_files_are_read_up_to_half_a_record(tmp_path: Path, as_tensor: bool) -> None:
    path = tmp_path / "events.out.tfevents.1"
    whole = b"".join(event(step, as_tensor) for step in range(5))
    path.write_bytes(whole + event(5, as_tensor)[:-9])
    (series,) = read_log(str(path))
    assert (series.name, series.steps.tolist()) == ("loss", [0, 1, 2, 3, 4])
    assert series.values.tolist() == [0, 0.5, 1, 1.5, 2]


def test_event_files_that_torch_writes_are_read(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(3):
            writer.add_scalar("train/loss", step * 2.0, step)
    (path,) = tmp_path.iterdir()
    assert read_log(str(path))[0].values.tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "step,loss,note\n10,1,x\n20,0.5,x\n"),
        ("results.csv", "   epoch,  loss\n 10, 1\n 20, 0.5\n"),  # of ultralytics
        ("a.jsonl", '{"step": 10, "loss": 1, "n": "x"}\n\n{"step": 20, "loss": 0.5, "n": []}\n'),
    ],
)
def test_csv_and_json_lines_give_the_same_series(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (series,) = read_log(str(tmp_path / name))
    assert (series.name, series.steps.tolist()) == ("loss", [10, 20])
    assert series.values.tolist() == [1, 0.5]


@pytest.mark.parametrize("content", ["", "a,b\nx,y\n", "[1, 2]", '{"a": \n'])
def test_a_file_without_numbers_is_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content)
    with pytest.raises(ProfileError):
        read_log(str(path))


def test_the_command_says_where_a_loss_became_nan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n" + "".join(f"{i},{1 / (i + 1)}\n" for i in range(30)) + "30,nan\n")
    assert command_line(["check", str(path)]) == 1
    assert "loss is no number from step 30" in capsys.readouterr().out
    assert command_line(["check", str(tmp_path / "no.csv")]) == 2


def test_several_logs_are_named_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "metrics.csv").write_text("step,loss,wall_time\n0,1,0\n1,1,60\n")
    series = read_logs([str(tmp_path / folder / "metrics.csv") for folder in ("a", "b")])
    assert [s.log for s in series] == ["a/metrics.csv", "b/metrics.csv"]
    assert [s.seconds.tolist() for s in series if s.seconds is not None] == [[0, 60]] * 2


def test_a_folder_of_event_files_is_one_log(tmp_path: Path) -> None:
    for number in range(2):
        rows = b"".join(event(10 * number + step) for step in range(3))
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(rows)
    (series,) = read_log(str(tmp_path))
    assert series.steps.tolist() == [0, 1, 2, 10, 11, 12]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProfileError, match="a folder of event files"):
        read_log(str(tmp_path / "empty"))


def test_noise_alone_and_a_real_best_in_the_middle_are_never_failed() -> None:
    places, at = np.arange(60.0), np.arange(40.0)
    middle = 0.5 + 0.3 * (places / 30) * np.exp(1 - places / 30)  # overfitting: no luck
    for seed in range(60):
        noise = 0.03 * np.random.default_rng(seed).normal(size=60)
        for values in (1 - np.exp(-at / 7) + noise[:40], middle + noise):
            subject = LogSubject([Series("val_acc", np.arange(float(len(values))), values)])
            assert ChosenBest().run(subject).judgement is not Judgement.FAIL


@pytest.mark.parametrize(("count", "expected"), [(10, 1.539), (100, 2.508)])
def test_the_luck_of_equal_evaluations_is_the_expected_maximum(count: int, expected: float) -> None:
    """Expected largest of N normal numbers (Harter, 1961)."""
    assert expected_luck(np.zeros(count), 1.0) == pytest.approx(expected, abs=0.08)
    assert expected_luck(np.zeros(count), 0.0) == 0


def test_noise_is_measured_beside_a_slope_and_an_outlier() -> None:
    rng = np.random.default_rng(0)
    values = 0.3 * np.arange(400.0) + rng.normal(0, 2.0, 400)
    values[100] = 1e6
    assert noise_of(values) == pytest.approx(2.0, rel=0.15)
    line = smoothed(np.arange(50.0), 0.5)
    assert np.abs(line - np.arange(50)).max() < 1e-6  # a line is its own smooth curve


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_the_error_of_a_mean_covers_correlated_noise(share: float) -> None:
    means, errors = [], []
    for seed in range(60):
        values = correlated(np.random.default_rng(seed), 200, share)
        means.append(values[-5:].mean())
        errors.append(error_of_mean(values, 5))
    assert np.mean(errors) > 0.9 * np.std(means)
    assert np.mean(errors) < 2.5 * np.std(means)


@pytest.mark.parametrize(
    ("name", "sign", "held_out"),
    [
        ("train/loss", -1, False), ("val_accuracy", 1, True), ("evalLoss", -1, True),
        ("test/top-1", 1, True), ("lr", 0, False), ("glossary", 0, False), ("valMSE", -1, True),
        ("Validation mAP", 1, True), ("grad_norm", 0, False), ("box_loss", -1, False),
    ],
)  # fmt: skip
def test_names_say_what_is_better(name: str, sign: int, held_out: bool) -> None:
    assert (better_is(name), is_held_out(name)) == (sign, held_out)


def test_random_orders_stay_far_from_the_bound_and_orders_of_the_storage_are_beyond() -> None:
    rng = np.random.default_rng(0)
    scores = [order_score(rng.permutation(200).tolist()) for _ in range(2000)]
    assert abs(np.std(scores) - 1) < 0.06  # the null has deviation 1, as the bound assumes
    assert np.abs(scores).max() < FAR
    labels = [rng.choice(4, 128, p=[0.7, 0.1, 0.1, 0.1]) for _ in range(60)]
    assert max(neighbour_score(row)[0] for row in labels) < 4.5
    assert order_score(range(100)) > 9
    assert order_score(range(100, 0, -1)) < -9
    assert neighbour_score(np.repeat(np.arange(4), 32))[0] > 20
