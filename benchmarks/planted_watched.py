"""Training scripts of five kinds as users write them, each with a loader that is slow or keeps up.

Plain torch, a loop of eager Keras over tf.data, two ranks (torchrun, gloo), Lightning, the Hugging
Face Trainer. The environment names the loader (LOADER, slow or healthy), the steps and the
pictures; `make_loader` and `make_step` are there for `run` too. `planted.py watch` starts them.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import os, sys, time
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from pathlib import Path
import numpy as np
from PIL import Image

SLOW = os.environ["LOADER"] == "slow"
STEPS, SIDE, BATCH = int(os.environ["STEPS"]), 64, 8
PATHS = [p for p in sorted(Path(os.environ["PICTURES"]).rglob("*.jpg")) if p.stat().st_size > 2000]

def read(i):
    try:
        with Image.open(PATHS[i % len(PATHS)]) as opened:
            picture = opened.convert("RGB").resize((SIDE, SIDE))
    except OSError:
        picture = Image.new("RGB", (SIDE, SIDE))
    for turn in range(150 if SLOW else 0):
        picture = picture.rotate(turn, Image.BICUBIC)
    return np.asarray(picture, np.float32) / 255, i % 4

def said(seconds):
    print("STEP_MS", 1e3 * sorted(seconds[10:])[len(seconds[10:]) // 2])
"""
TORCH = (
    HEAD
    + """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Pictures(Dataset):
    def __len__(self):
        return STEPS * BATCH
    def __getitem__(self, i):
        x, y = read(i)
        return torch.from_numpy(x.transpose(2, 0, 1).copy()), y

def network():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(768, 4))

def make_loader():
    return DataLoader(Pictures(), BATCH, num_workers=1, shuffle=True)

def make_step(model=None):
    model = model or network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    def step(batch):
        x, y = batch
        for _ in range(4):  # as long as a larger network would take
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return step
"""
)
PLAIN = (
    TORCH
    + """
if __name__ == "__main__":
    step, seconds, begun = make_step(), [], time.perf_counter()
    for batch in make_loader():
        step(batch)
        seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
    said(seconds)
"""
)
RANKS = (
    TORCH
    + """
if __name__ == "__main__":
    import torch.distributed as dist
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(network())
    step, seconds, begun = make_step(model), [], time.perf_counter()
    for batch in make_loader():
        step(batch)
        seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
    if dist.get_rank() == 0:
        said(seconds)
    dist.destroy_process_group()
"""
)
LIGHTNING = (
    TORCH
    + """
if __name__ == "__main__":
    import lightning, logging, warnings
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.seconds, self.begun = network(), [], time.perf_counter()
            self.automatic_optimization = False
        def training_step(self, batch, number):
            x, y = batch
            for _ in range(4):
                loss = nn.functional.cross_entropy(self.net(x), y)
                self.optimizers().zero_grad()
                self.manual_backward(loss)
                self.optimizers().step()
            self.seconds.append(time.perf_counter() - self.begun)
            self.begun = time.perf_counter()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)
    module = Module()
    lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False).fit(module, make_loader())
    said(module.seconds)
"""
)
TRAINER = (
    TORCH
    + """
class Rows(Pictures):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return {"x": x, "labels": y}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.seconds, self.begun = network(), [], time.perf_counter()
    def forward(self, x, labels=None):
        out = self.net(x)
        for _ in range(3):
            out = out + self.net(x)
        self.seconds.append(time.perf_counter() - self.begun)
        self.begun = time.perf_counter()
        return {"loss": nn.functional.cross_entropy(out, labels), "logits": out}

if __name__ == "__main__":
    import tempfile, transformers
    model = Net()
    given = transformers.TrainingArguments(tempfile.mkdtemp(), num_train_epochs=1, use_cpu=True,
        per_device_train_batch_size=BATCH, report_to=[], save_strategy="no", disable_tqdm=True,
        dataloader_num_workers=1, logging_strategy="no")
    transformers.Trainer(model=model, args=given, train_dataset=Rows()).train()
    said(model.seconds)
"""
)
KERAS = (
    HEAD
    + """
import tensorflow as tf
import keras
tf.config.threading.set_intra_op_parallelism_threads(1)

def rows():
    for i in range(STEPS * BATCH):
        yield read(i)

def make_loader():
    kinds = (tf.TensorSpec((SIDE, SIDE, 3), tf.float32), tf.TensorSpec((), tf.int32))
    return tf.data.Dataset.from_generator(rows, output_signature=kinds).batch(BATCH).prefetch(2)

def make_step():
    model = keras.Sequential([keras.Input((SIDE, SIDE, 3)), keras.layers.Conv2D(24, 3),
        keras.layers.ReLU(), keras.layers.MaxPooling2D(4),
        keras.layers.Flatten(), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01)
    def step(batch):
        x, y = batch
        for _ in range(4):
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            grads = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables))
        float(value)
    return step

if __name__ == "__main__":
    step, seconds, begun = make_step(), [], time.perf_counter()
    for batch in make_loader():
        step(batch)
        seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
    said(seconds)
"""
)


@dataclass(frozen=True)
class Kind:
    """A kind of script: its text, what it needs, and how it is started."""

    text: str
    needs: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()


TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")
KINDS = {
    "plain": Kind(PLAIN),
    "keras": Kind(KERAS, ("tensorflow",)),
    "ranks": Kind(RANKS, launcher=TORCHRUN),
    "lightning": Kind(LIGHTNING, ("lightning",)),
    "trainer": Kind(TRAINER, ("transformers", "accelerate")),
}
