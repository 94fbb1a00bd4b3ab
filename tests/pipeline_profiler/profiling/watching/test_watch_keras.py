"""TensorFlow watched: eager loops at their iterator, fit by a callback that says what it cannot."""

from pathlib import Path

import pytest

from pipeline_profiler.profiling.diagnose.verdict import Verdict
from pipeline_profiler.profiling.diagnose.window import Window
from pipeline_profiler.profiling.record.session import Session
from tests.pipeline_profiler.profiling.watching.scripts import watch, write_script

pytestmark = pytest.mark.slow

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
