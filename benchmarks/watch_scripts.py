"""`watch -- script` beside `run`: the same verdict on five kinds of real training scripts?

Each script trains a small network on the pictures of `sample_data`: plain torch, a loop of eager
Keras over tf.data, two ranks (torchrun, gloo), Lightning, the Hugging Face Trainer; the last two
where they are installed. Each is tried with a loader that keeps up and with one that turns every
picture over until the training waits. `watch` runs the script as it is; `run` gets its
`make_loader` and `make_step`. What watching costs is the step that the script itself prints, by
turns without and with `watch`, medians of `--pairs`.

    python benchmarks/watch_scripts.py [--pairs 3] [--kinds plain,keras,ranks,lightning,trainer]

About 4 minutes for the first three. The last line is JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = 120
BOUND = ("input-bound moderate", "input-bound high")

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


class Trial:
    """One script in a folder of its own."""

    def __init__(self, kind: Kind, folder: Path, loader: str) -> None:
        """Write the script; `loader` is "slow" or "healthy"."""
        self.kind, self.folder = kind, folder
        folder.mkdir(parents=True)
        self.script = folder / "train.py"
        self.script.write_text(kind.text)
        self.settings = {
            **os.environ, "LOADER": loader, "STEPS": str(STEPS), "OMP_NUM_THREADS": "1",
            "PICTURES": str(ROOT / "sample_data" / "train"), "PYTHONPATH": str(ROOT),
            "PIPELINE_PROFILER_RUNS": str(folder / "runs.sqlite"), "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip

    def _ended(self, *line: str) -> str:
        done = subprocess.run(
            line, cwd=self.folder, env=self.settings, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(line)}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def watched(self) -> str:
        """The verdict of the script under `watch`; of ranks the first one's."""
        self._ended(*self._watch())
        return self._verdict(*sorted(self.folder.glob("profile*.json")))

    def measured(self) -> str:
        """The verdict of `run` over the same loader and step."""
        names = (f"{self.script}:make_loader", "--step", f"{self.script}:make_step")
        self._ended(sys.executable, "-m", "pipeline_profiler", "run", *names, "-o", "run.json")
        return self._verdict(self.folder / "run.json")

    def _watch(self) -> tuple[str, ...]:
        line = (*self.kind.launcher, str(self.script))
        return (sys.executable, "-m", "pipeline_profiler", "watch", "--", *line)

    @staticmethod
    def _verdict(*paths: Path) -> str:
        from pipeline_profiler.record.session import Session

        return str(Session.load(paths[0]).results["verdict"])

    def step_ms(self, *, watched: bool) -> float:
        """The median step that the script prints."""
        own = self.kind.launcher and (sys.executable, "-m", "torch.distributed.run")
        plain = (*(own or (sys.executable,)), *self.kind.launcher[1:], str(self.script))
        found = re.search(r"STEP_MS ([\d.]+)", self._ended(*(self._watch() if watched else plain)))
        assert found, "the script printed no step"
        return float(found[1])


def compare(name: str, folder: Path, pairs: int) -> dict[str, object]:
    """Both verdicts with both loaders, and what watching costs a step."""
    row: dict[str, object] = {"script": name}
    for loader in ("healthy", "slow"):
        trial = Trial(KINDS[name], folder / name / loader, loader)
        watched, measured = trial.watched(), trial.measured()
        row[loader] = {"watch": watched, "run": measured, "same": _alike(watched, measured)}
        if loader == "healthy":
            found = [[trial.step_ms(watched=w) for w in (False, True)] for _ in range(pairs)]
            plain, with_watch = (statistics.median(column) for column in zip(*found, strict=True))
            row |= {"step_ms": round(plain, 2), "watched_ms": round(with_watch, 2)}
        print(f"{name:10} {loader:8} watch: {watched}; run: {measured}", flush=True)
    print(f"{name:10} step {row['step_ms']} ms, watched {row['watched_ms']} ms", flush=True)
    return row


def _alike(watched: str, measured: str) -> bool:
    """Whether both say bound, or both not; the bands of one loop and of arms may differ."""
    return watched == measured or (watched in BOUND and measured in BOUND)


def main() -> None:
    """Try every kind that is installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for name in arguments.kinds.split(","):
            missing = [n for n in KINDS[name].needs if importlib.util.find_spec(n) is None]
            if missing:
                print(f"{name:10} left out: {', '.join(missing)} not installed")
                continue
            rows.append(compare(name, Path(work), arguments.pairs))
    print(json.dumps(rows))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
