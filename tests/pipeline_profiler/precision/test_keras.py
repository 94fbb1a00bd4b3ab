"""Keras on the same definitions: policies, skipped steps, loss scale and the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("tensorflow"), reason="needs TensorFlow"),
]

PROGRAM = """
import json, os, sys, warnings
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1")
import keras, numpy as np, tensorflow as tf
from pipeline_profiler.precision.trainer import Cell, Recipe
from pipeline_profiler.precision.backend_keras import KerasBackend, keras_resnet18
CPU = KerasBackend("cpu")

# w * x with loss w * x: the scaled gradient x * scale is infinite in FP16 above 65,504
def make():
    model = keras.Sequential([keras.Input((1,)),
        keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    return model, lambda targets, outputs: tf.reduce_sum(outputs)

def train(precision, scale, x, steps, start=None):
    with CPU.using(precision):
        made = CPU.new_trainer(make, Cell("w", 1, precision, scale), Recipe(lr=2.0**-12))
        if start:
            made.start_at(start)
        weights = []
        for _ in range(steps):
            made.step((np.full((1, 1), x, "float32"), np.zeros(1, "float32")))
            weights.append(float(made.model.trainable_variables[0].numpy().ravel()[0]))
        return {"skipped": made.skipped(), "scale": made.scale(), "weights": weights,
                "dtype": made.model.layers[-1].compute_dtype}

from pipeline_profiler.precision.plan import ModelJob, SweepOptions
from pipeline_profiler.precision.sweep import measure_precisions

def make_loader(size):
    rng = np.random.default_rng(size)
    x = rng.standard_normal((4 * size, 4, 4, 3)).astype("float32")
    y = (np.arange(4 * size) % 3).astype("int64")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size)

def classifier(outputs):
    return lambda: keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten(),
                                     keras.layers.Dense(outputs, dtype="float32")])

options = SweepOptions(batch_sizes=(4,), precisions=("fp32", "tf32", "bf16"),
                       rounds=3, steps=2, parity_steps=3, gap_s=0.0)
jobs = [ModelJob("good", classifier(3), make_loader),
        ModelJob("short", classifier(2), make_loader)]
results = measure_precisions(CPU, jobs, options).to_json()["precision"]
network = keras_resnet18(10)
trainable = sum(int(np.prod(w.shape)) for w in network.trainable_weights)
print(json.dumps({
    "dynamic": train("fp16", "dynamic", 8.0, 6),
    "started": train("fp16", "dynamic", 8.0, 2, start=2.0**12),
    "static": train("fp16", "128", 8.0, 3),
    "overflow": train("fp16", "128", 1000.0, 3),
    "fp32": train("fp32", "", 8.0, 3),
    "bf16": train("bf16", "", 8.0, 3),
    "policy_after": keras.mixed_precision.dtype_policy().name,
    "flags": CPU.flags("fp32"),
    "refusal": CPU.refusal("tf32"),
    "rows": results["rows"],
    "sentences": results["sentences"],
    "trainable": trainable,
    "shape": network.output_shape,
}))
"""


@pytest.fixture(scope="module")
def trained() -> Any:
    """What every test below reads, from one child: TensorFlow takes seconds to start, and its
    threads and torch's in one process would starve each other."""
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        timeout=300,
        check=False,
    )
    assert out.returncode == 0, out.stderr[-3000:]
    return json.loads(out.stdout.strip().splitlines()[-1])


def test_dynamic_scales_halve_until_the_gradient_fits_and_static_ones_stay(trained: Any) -> None:
    def found(name: str) -> tuple[list[int], float, list[float]]:
        return tuple(trained[name][key] for key in ("skipped", "scale", "weights"))

    full = trained["fp32"]["weights"]
    # Keras starts at 2^15: 8 * 2^15, 2^14, 2^13 overflow, 8 * 2^12 = 32768 fits
    assert found("dynamic") == ([0, 1, 2], 2.0**12, [1.0] * 3 + full)
    # a found scale is where a later trainer begins
    assert found("started") == ([], 2.0**12, full[:2])
    assert found("static") == ([], 128.0, full)
    assert found("overflow") == ([0, 1, 2], 128.0, [1.0] * 3)


def test_policies_decide_the_compute_type_and_are_put_back(trained: Any) -> None:
    dtypes = [trained[name]["dtype"] for name in ("dynamic", "bf16", "fp32")]
    assert dtypes == ["float16", "bfloat16", "float32"]
    assert trained["fp32"]["scale"] is None
    assert trained["policy_after"] == "float32"
    assert trained["flags"] == {"policy": "float32", "tf32": False}
    assert "a CPU has no TF32" in trained["refusal"]


def test_the_table_has_the_same_rows_and_bad_inputs_are_rows(trained: Any) -> None:
    rows = {(r["model"], r["precision"]): r for r in trained["rows"]}
    good = rows["good", "bf16"]
    assert (good["status"], good["step_ms"]["n"], good["peak_bytes"]) == ("ok", 3, None)
    assert good["with_loader_per_s"]["value"] > 0
    assert good["marks"][-1]["step"] == 3
    assert "not measured" in good["peak_how"]
    assert "a CPU has no TF32" in rows["good", "tf32"]["sentence"]
    assert "label 2 lies outside [0, 2)" in rows["short", "fp32"]["sentence"]
    assert (trained["trainable"], trained["shape"]) == (11_173_962, [None, 10])
    assert any("batch 4" in text for text in trained["sentences"])
