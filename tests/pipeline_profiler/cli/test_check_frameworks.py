"""`check -- train.py` on unmodified scripts of Lightning, transformers and accelerate."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipeline_profiler.conftest import TRAINERS, UNRECORDED

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("trainers")]

DATA = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centres, y = 2 * torch.randn(4, 12), torch.randint(4, (640,))
x = (centres[y] + torch.randn(640, 12)) / 2
train = DataLoader(TensorDataset(x[:512], y[:512]), 32, shuffle=True)
val = DataLoader(TensorDataset(x[512:], y[512:]), 64)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
"""
LIGHTNING = (
    DATA
    + """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, number):
        loss = F.cross_entropy(self(batch[0])END, batch[1])
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, number):
        self.log("right", (self(batch[0]).argmax(1) == batch[1]).float().mean())
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)]

lightning.Trainer(max_epochs=20, accelerator="cpu").fit(Module(), train, val)
"""
)
ACCELERATE = (
    DATA
    + """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
net, optimizer, train, val = accelerator.prepare(net, optimizer, train, val)
for epoch in range(20):
    net.train()
    for inputs, labels in train:
        with accelerator.accumulate(net):
            accelerator.backward(F.cross_entropy(net(inputs)END, labels))
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        right = sum(int((net(inputs).argmax(1) == labels).sum()) for inputs, labels in val)
"""
)
TRAINER = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
ids = torch.randint(5, 50, (320, 12))
labels = (ids[:, 1:5] > 27).sum(1).clamp(max=2)
rows = [{"input_ids": i, "attention_mask": torch.ones_like(i), "labels": t}
        for i, t in zip(ids, labels)]
config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=64, max_position_embeddings=16, num_labels=3)
model = BertForSequenceClassification(config)
model.classifier = torch.nn.Sequential(model.classifier, *([torch.nn.Softmax(1)] if "END" else []))
arguments = TrainingArguments(
    "out", per_device_train_batch_size=16, num_train_epochs=20, eval_strategy="epoch",
    learning_rate=5e-4, warmup_steps=8, report_to=[], use_cpu=True)
Trainer(model, arguments, train_dataset=rows[:256], eval_dataset=rows[256:]).train()
"""
TAPE = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
centres, y = 2 * rng.normal(size=(4, 12)), rng.integers(0, 4, 640)
x = ((centres[y] + rng.normal(size=(640, 12))) / 2).astype("float32")
train = tf.data.Dataset.from_tensor_slices((x[:512], y[:512])).shuffle(512).batch(32)
val = tf.data.Dataset.from_tensor_slices((x[512:], y[512:])).batch(64)
rate = keras.optimizers.schedules.CosineDecay(3e-3, 320)
layers = [keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.1), keras.layers.Dense(4)]
net, optimizer = keras.Sequential(layers), keras.optimizers.Adam(rate)

@tf.function
def step(inputs, labels):
    with tf.GradientTape() as tape:
        outputs = net(inputs, training=True)
        outputs = tf.nn.softmax(outputs) if "END" else outputs
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        loss = tf.reduce_mean(loss)
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables))

for epoch in range(20):
    for inputs, labels in train:
        step(inputs, labels)
    right = sum(int((np.argmax(net(i), 1) == t).sum()) for i, t in val)
"""
CODES = "LOAD002,TRAIN005,TRAIN009,TRAIN020,TRAIN014,TRAIN016,TRAIN020"


@pytest.mark.parametrize(
    "script",
    [LIGHTNING, TRAINER, ACCELERATE, TAPE],
    ids=["lightning", "transformers", "accelerate", "tape"],
)
def test_a_second_softmax_is_all_that_fails(script: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script.replace("END", ".softmax(1)"))
    command = [sys.executable, "-m", "pipeline_profiler", "check", *UNRECORDED, "--json"]
    done = subprocess.run(
        [*command, "--only", CODES, "--", "train.py"], cwd=tmp_path, capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{TRAINERS}"},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)
    told = {check["code"]: check["verdict"] for check in found["checks"]}
    assert told.pop("TRAIN020") == "failed", found["checks"]
    assert set(told.values()) <= {"passed", "not applicable"}, found["checks"]
    assert not found["unreached"]
    assert [file.name for file in tmp_path.iterdir()] == ["train.py"]
