"""Scripts that know nothing of us, watched: they end as they would, and leave a verdict."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.cli import main
from pipeline_profiler.profiling.diagnose.disturbance import DISTURBED
from pipeline_profiler.profiling.diagnose.verdict import Verdict
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.profiling.monitor.scripts import (
    environment,
    results_of,
    watch,
    watch_line,
    write_script,
)

pytestmark = pytest.mark.slow


SLOW = """
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Items(48, 0.06), 2, num_workers=1, multiprocessing_context="spawn")
    model = train(loader)
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(Items(40, 0.01), 2):
            model(x)
    print("lr", args.lr, __name__, os.path.basename(sys.path[0]), sys.argv[1:])
    sys.exit(3)

if __name__ == "__main__":
    main()
"""

TWO = """
train(DataLoader(Items(60, 0.0), 2), 0.02)
train(DataLoader(Items(80, 0.02), 2), 0.002)
"""

HEALTHY = """
torch.save(train(DataLoader(Items(60, 0.0), 2), 0.02), "model.pt")
raise RuntimeError("the script's own")
"""

ENDLESS = """
print("begun", flush=True)
train(DataLoader(Items(100000, 0.001), 2), 0.002)
"""


@pytest.fixture(scope="module")
def slow(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    folder = tmp_path_factory.mktemp("slow")
    script = write_script(folder, SLOW)
    return folder, watch(folder, "--", script, "--lr", "0.5")


def test_a_script_keeps_its_arguments_its_main_its_folder_and_its_exit_code(slow) -> None:
    _, ended = slow
    assert ended.stdout == "lr 0.5 __main__ project ['--lr', '0.5']\n"
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr


def test_a_slow_loader_with_spawned_workers_is_named_with_its_line(slow) -> None:
    folder, ended = slow
    session = Session.load(folder / "profile.json")
    assert session.results["verdict"] == Verdict.HIGH
    assert str(session.results["sentence"]) in ended.stderr
    assert any("read_slowly" in place for place in session.runs[0].stacks)
    assert len(session.runs[0].batches["batch"]) == 24  # what the workers did is known


def test_an_evaluation_is_no_part_of_the_training(slow) -> None:
    folder, _ = slow
    session = Session.load(folder / "profile.json")
    assert len(Window.of(session.runs[0]).whole) == 24
    assert set(session.results["phases"]) >= {"wait", "forward", "backward", "optimizer"}
    assert session.results["phases"]["evaluation"] > 0.2
    assert session.notes == ["20 batches were evaluated: they are no part of the training step."]


def is_busy(results: dict[str, Any]) -> bool:
    """Whether other tests took cores: waits that they cause are measured too."""
    return bool(results["machine"]["others"] >= DISTURBED)


def test_two_loops_in_one_script_are_two_loops(tmp_path: Path) -> None:
    ended = watch(tmp_path, "--", write_script(tmp_path, TWO))
    names = ("profile.json", "profile-loop2.json")
    found = [Session.load(tmp_path / name) for name in names]
    assert [len(Window.of(one.runs[0])) for one in found] == [40, 30]
    slow, healthy = (one.results for one in found)
    assert slow["verdict"] == Verdict.HIGH
    assert healthy["stall"]["share"] < slow["stall"]["share"] / 2
    assert not Verdict(healthy["verdict"]).bound or is_busy(healthy)
    assert "loop 1 of 2, at train.py:" in ended.stderr
    assert "loop 2 of 2, at train.py:" in ended.stderr
    assert f"saved: {' '.join(names)} " in ended.stderr


def test_a_healthy_training_is_left_in_peace_and_keeps_its_traceback(tmp_path: Path) -> None:
    path = write_script(tmp_path, HEALTHY)
    ended = watch(tmp_path, "-o", "out/p.json", "--", path)
    assert ended.returncode == 1
    script_part = ended.stderr.partition("\n\npipeline-profiler:")[0]
    assert script_part == (
        "Traceback (most recent call last):\n"
        f'  File "{path}", line 36, in <module>\n'
        """    raise RuntimeError("the script's own")\n"""
        "RuntimeError: the script's own"
    )
    results = results_of(tmp_path / "out" / "p.json")
    assert is_busy(results) or not Verdict(results["verdict"]).bound
    assert is_busy(results) or not [c for c in results["causes"] if c["about"] == "input"]
    # nothing of ours is in a model that was saved
    assert b"pipeline_profiler" not in (tmp_path / "model.pt").read_bytes()


def test_ctrl_c_ends_the_script_and_what_was_recorded_is_kept(tmp_path: Path) -> None:
    path = write_script(tmp_path, ENDLESS)
    watching = subprocess.Popen(
        watch_line("--set", "measure.every=0.3", "--", path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == "begun\n"
    while not (tmp_path / "profile.json").exists():  # saved as it goes
        assert watching.poll() is None
        time.sleep(0.05)
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate()
    assert watching.returncode == 128 + signal.SIGINT
    assert "KeyboardInterrupt" in said
    assert results_of(tmp_path / "profile.json")["verdict"] in set(Verdict)


def test_a_module_runs_as_a_module(tmp_path: Path) -> None:
    write_script(tmp_path, "print(__name__, __spec__.name)\n", head="")
    ended = watch(tmp_path / "project", "--", "-m", "train")
    assert ended.stdout == "__main__ train\n"
    assert ended.returncode == 0
    assert "nothing is saved" in ended.stderr
    assert "for batch in rec.watch(loader)" in ended.stderr
    assert "--python" not in ended.stderr


@pytest.mark.parametrize("words", [[], ["--"], ["--", "missing.py"], ["train.py", "--config", "x"]])
def test_nothing_to_watch_is_one_sentence(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.command_line(["watch", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_script_that_ended_early_is_told_which_python_it_had(tmp_path: Path) -> None:
    path = write_script(tmp_path, "import absent_x\n", head="")
    ended = watch(tmp_path, "--", path)
    assert ended.returncode == 1
    assert f"It ran in {sys.executable}: --python PATH names the Python" in ended.stderr


# ---- TensorFlow: eager loops at their iterator, fit by a callback that says what it cannot ----


FIT = """
import numpy as np
import tensorflow as tf
import keras

for x in tf.data.Dataset.range(30):
    pass
data = tf.data.Dataset.from_tensor_slices((np.zeros((24, 3)), np.zeros(24))).batch(4)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(data, epochs=2, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()])
print(len(history.epoch))
"""


def test_fit_is_recorded_whole_and_its_wait_is_not_guessed(tmp_path: Path) -> None:
    ended = watch(tmp_path, "--", write_script(tmp_path, FIT, head=""))
    assert ended.stdout == "2\n"
    session = Session.load(tmp_path / "profile.json")
    assert len(Window.of(session.runs[0])) == 12
    assert session.results["verdict"] == Verdict.INCONCLUSIVE
    said = " ".join(ended.stderr.split())
    assert "is inconclusive, because Keras draws the batch inside" in said
    assert session.notes == ["30 batches were evaluated: they are no part of the training step."]


EAGER = """
import time
import keras, numpy as np, tensorflow as tf
STEP_S = [0.0]  # the last step: a wait is long beside it, on any machine
class Timed(keras.Sequential):
    def train_step(self, *batch):
        began = time.monotonic()
        made = super().train_step(*batch)
        STEP_S[0] = time.monotonic() - began
        return made
def rows():
    between = 0.0  # from one batch to the next that is asked for: all that Keras does
    for _ in range(30):
        time.sleep(0.05 + 3 * max(STEP_S[0], between))
        began = time.monotonic()
        yield np.zeros((4, 3)), np.zeros(4)
        between = time.monotonic() - began
spec = (tf.TensorSpec((4, 3)), tf.TensorSpec((4,)))
data = tf.data.Dataset.from_generator(rows, output_signature=spec)
model = Timed([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)
model.fit(data, verbose=0)
"""


def test_a_step_that_runs_eagerly_draws_its_batch_where_the_wait_is_seen(tmp_path: Path) -> None:
    script = write_script(tmp_path, EAGER, head="")
    watch(tmp_path, "--", script)
    session = Session.load(tmp_path / "profile.json")
    assert session.runs[0].config["wait_told"]
    assert session.results["verdict"] == Verdict.HIGH
    assert Window.of(session.runs[0]).steps.wait.mean() > 20e6
