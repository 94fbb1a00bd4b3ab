"""Everything of the profiler that only a GPU can show, in one command of ten minutes: `make gpu`.

    python benchmarks/on_a_gpu.py [--pretend] [--seconds 600] [--data FOLDER] [--out runs/on_a_gpu]

One CUDA device, no network. In this order: the tests marked `cuda`; ResNet-18 and DPN-92 at batch
128 to 640 in FP32, TF32, FP16 (dynamic and static loss scale) and BF16 under 21 GiB, a row out of
memory being one too; copies from host to device; one healthy and three starved pipelines whose
truth bare loops tell, beside what `run` says, starvation by events and utilisation; what recording
costs by length of step. What fails says so, and the next thing follows.

OUT.json is a `profile/1` session: the table, with all else under `on_a_gpu` and as notes, so that
`pipeline-profiler report` and the app show it; pipeline_profiler/on_a_gpu.json is such a file.
OUT.md is a page for docs/benchmarks.md. `--pretend` runs all of it on a CPU, small, with a device
that is a queue on the host's clock: it shows that the command ends, and no figure.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from bench import ENVIRONMENT, ROOT, Document, hall, measures
from torch.utils.data import DataLoader, Dataset

from pipeline_profiler.precision.summary import summarise
from pipeline_profiler.precision.table import measurement_from_dict
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.measure import arms, environment
from pipeline_profiler.profiling.measure.arms import Bench, Options
from pipeline_profiler.profiling.measure.schedule import measure_arms
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.recorder import Recorder
from pipeline_profiler.profiling.record.session import Session, utc_now
from pipeline_profiler.report.precision import HEAD, format_row

app = hall(__doc__)
Step = Callable[[Any], Any]
SHARES = {"tests": 0.15, "precision": 0.6, "pipeline": 0.05}  # of the time
COPIED = (1, 16, 128)  # megabytes
STEPS_MS = (0.3, 1.0, 10.0, 50.0)
AHEAD_MS = 200.0  # of work that a host launches before it must wait for its device
NETWORKS, SMALL_NETWORKS = ("resnet18", "dpn92"), ("resnet18", "dpn26")
SIDE = 2048  # of the matrices that a step multiplies


# ---- a device, or what stands for it ----


class PretendedDevice:
    """A device on the host's clock, whose queue holds `AHEAD_MS` of work."""

    busy_until = 0.0  # milliseconds

    def now(self) -> float:
        """The host's clock."""
        return time.perf_counter() * 1e3

    def launch(self, milliseconds: float) -> None:
        """Work that begins after all that was launched; the host waits where its queue is full."""
        self.busy_until = max(self.now(), self.busy_until) + milliseconds
        self.wait(AHEAD_MS)

    def wait(self, ahead: float = 0.0) -> None:
        """Until no more than so much is left to do."""
        time.sleep(max(0.0, self.busy_until - ahead - self.now()) / 1e3)


PRETENDED = PretendedDevice()


class PretendedEvent:
    """An event of the pretended device."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        """It is passed when the device has done what was launched."""
        self.at = max(PRETENDED.now(), PRETENDED.busy_until)

    def query(self) -> bool:
        """Whether the device has passed it."""
        return PRETENDED.now() >= self.at

    def elapsed_time(self, later: PretendedEvent) -> float:
        """Milliseconds."""
        return later.at - self.at


@contextlib.contextmanager
def pretended_device() -> Iterator[None]:
    """Fakes for the clock and the memory of a device: the profiler takes its CUDA paths."""
    describe = environment.describe

    def described(gpu: bool = False) -> Document:
        with patch.object(environment, "has_cuda", lambda: False):
            found: Document = describe()
        return found | {"torch": found["torch"] | {"device": "pretended"}}

    def silent(*given: object) -> None:
        return None

    with contextlib.ExitStack() as fakes:
        cuda = {"Event": PretendedEvent, "synchronize": PRETENDED.wait}
        modes = {"is_initialized": lambda: True, "get_sync_debug_mode": lambda: 0}
        for name, fake in (cuda | modes | {"set_sync_debug_mode": silent}).items():
            fakes.enter_context(patch.object(torch.cuda, name, fake))
        fakes.enter_context(patch.object(environment, "describe", described))
        fakes.enter_context(patch.object(environment, "has_cuda", lambda: True))
        fakes.enter_context(patch.object(arms, "to_device", lambda tensor: tensor))
        yield


@dataclass(frozen=True)
class Device:
    """Where tensors go, and what a step of so many milliseconds is there."""

    pretend: bool

    @property
    def name(self) -> str:
        """What torch calls it."""
        return "cpu" if self.pretend else "cuda"

    def work(self, milliseconds: float) -> Callable[[], None]:
        """Products of matrices that take so long on the device and return at once."""
        if self.pretend:
            return lambda: PRETENDED.launch(milliseconds)
        a = torch.ones(SIDE, SIDE, device="cuda")

        def multiply(times: int) -> None:
            for _ in range(times):
                torch.matmul(a, a)

        multiply(50)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        multiply(200)
        torch.cuda.synchronize()
        each = (time.perf_counter() - begin) / 200 * 1e3
        times = max(1, round(milliseconds / each))
        return lambda: multiply(times)


# ---- the parts ----


def cuda_tests(device: Device, seconds: float) -> Document:
    """Every test marked cuda."""
    line = [sys.executable, "-m", "pytest", "-v", "-m", "cuda", "tests/pipeline_profiler"]
    done = subprocess.run(
        [*line, "--continue-on-collection-errors"],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped)", done.stdout)}
    failed = re.findall(r"^FAILED (.+)", done.stdout, re.MULTILINE)
    return {"exit_code": done.returncode, **counts, "failed_tests": failed}


def saved_table(out: Path) -> Session | None:
    """What `precision` saved: at `out`, or packed beside it where it is large."""
    found = [path for path in (out, out.with_name(f"{out.name}.gz")) if path.exists()]
    return Session.load(found[0]) if found else None


def precision_table(device: Device, seconds: float, data: Path | None, out: Path) -> Document:
    """The tables of `pipeline-profiler precision`, a network after the other; as one at `out`."""
    words = ["--batch-sizes", "128,256,512,640", "--memory-limit", "21GiB", "--device", "cuda"]
    words += ["--precisions", "fp32,tf32,fp16,bf16", "--loss-scale", "dynamic,128"]
    if device.pretend:
        words = ["--batch-sizes", "4", "--precisions", "fp32,bf16", "--device", "cpu"]
        for key in ("steps=3", "repeats=2", "parity_steps=2"):
            words += ["--set", f"measure.{key}"]
    words += ["--data", str(data)] if data else []
    each = max(90 if device.pretend else 30, seconds / 2)
    words += ["--seconds", str(int(each)), "--set", "record.enabled=false"]
    whole: Session | None = None
    for network in SMALL_NETWORKS if device.pretend else NETWORKS:
        line = [sys.executable, "-m", "pipeline_profiler", "precision", network, *words]
        done = subprocess.run(
            [*line, "-o", str(out)], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True,
            timeout=4 * seconds, check=False,
        )  # fmt: skip
        if (session := saved_table(out)) is None or done.returncode:
            raise RuntimeError(
                f"{network}: {' '.join((done.stderr.strip() or 'no table').splitlines()[-2:])}"
            )
        if whole is None:
            whole = session
            continue
        for key, value in session.results["precision"].items():
            if isinstance(value, list):
                whole.results["precision"][key] += value
    assert whole is not None
    out.write_bytes(whole.packed())
    measured = measurement_from_dict(whole.results["precision"])
    statuses = [cell.probe.status for cell in measured.cells]
    return {name: statuses.count(name) for name in set(statuses)}


def host_to_device(device: Device) -> list[Document]:
    """GB/s of copies by size, from pageable and from pinned memory; medians of 20."""
    rows = []
    for megabytes, pin in itertools.product(COPIED, (False, True)):
        host = torch.ones(megabytes * 250_000)
        host = host.pin_memory() if pin and not device.pretend else host
        times = []
        for _ in range(20):
            new_event: Any = torch.cuda.Event
            begin, end = (new_event(enable_timing=True) for _ in range(2))
            begin.record()
            host.to(device.name, non_blocking=pin, copy=True)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        speed = megabytes / max(statistics.median(times), 1e-6)
        rows.append({"megabytes": megabytes, "pinned": pin, "gb_per_s": round(speed, 2)})
    return rows


class Stored(Dataset[Any]):
    """Samples that take a while: asleep as at a slow store, or on a core as a decoder."""

    def __init__(self, asleep_ms: float = 0.0, busy_ms: float = 0.0) -> None:
        self.asleep_ms, self.busy_ms = asleep_ms, busy_ms

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.asleep_ms / 1e3)
        end = time.thread_time() + self.busy_ms / 1e3
        while time.thread_time() < end:
            pass
        return torch.ones(3, 32, 32)


@dataclass(frozen=True)
class Pipeline:
    """A loader and the one without its plant, beside a step of so many milliseconds."""

    name: str
    make: Callable[[bool], Any]
    step_ms: float
    starved: bool = True


def large_batches(planted: bool) -> list[torch.Tensor]:
    """Float32 pictures in pageable memory, or their bytes in pinned memory: the copy takes time."""
    batch = torch.ones(64, 3, 224, 224, dtype=torch.float32 if planted else torch.uint8)
    return [batch.pin_memory() if not planted and torch.cuda.is_available() else batch] * 1000


def stored(planted: bool, **costs: float) -> DataLoader[Any]:
    """Batches of 16 by two workers."""
    return DataLoader(Stored(**costs) if planted else Stored(), 16, num_workers=2)


PIPELINES = (
    Pipeline("healthy", lambda planted: stored(False), 20.0, starved=False),
    Pipeline("slow store", lambda planted: stored(planted, asleep_ms=3.0), 10.0),
    Pipeline("slow decoding", lambda planted: stored(planted, busy_ms=2.0), 8.0),
    Pipeline("copy of large batches", large_batches, 5.0),
)


def bare_period(loader: Any, step: Step, seconds: float, warm: int = 8) -> float:
    """Milliseconds a step of an unwatched loop, the device waited for at both ends."""
    done, start = 0, 0.0
    while True:
        for batch in loader:
            step(batch)
            done += 1
            if done == warm:
                torch.cuda.synchronize()
                start = time.perf_counter()
            elif done > warm and time.perf_counter() - start > seconds:
                torch.cuda.synchronize()
                return (time.perf_counter() - start) / (done - warm) * 1e3


def pipeline(device: Device, p: Pipeline, seconds: float) -> Document:
    """The truth by bare loops in turn, and what `run` says of the planted loader."""
    work = device.work(p.step_ms)

    def step(batch: Any) -> None:
        part = batch[0] if isinstance(batch, (list, tuple)) else batch
        part.to(device.name, non_blocking=True).float().mean()
        work()

    spent, periods = seconds * 0.06, {True: list[float](), False: list[float]()}
    for planted in (True, False, False, True):
        periods[planted].append(bare_period(p.make(planted), step, spent))
    planted_ms, without_ms = (statistics.mean(periods[which]) for which in (True, False))
    loader = p.make(True)
    session = measure_arms(
        Bench(lambda: loader, step), Options(quick=True, seconds=seconds * 0.6, seed=0)
    )
    found = diagnose_session(session)
    first = found.causes[0].code if found.causes else "none"
    copy = found.evidence.parts.get("copy")
    warm = found.evidence.windows.arm(Arm.WARM)
    seen = [window.starvation.value for window in warm if window.tells_of_device]
    return {
        "name": p.name, "planted_ms": round(planted_ms, 2), "without_ms": round(without_ms, 2),
        "saved": round(1 - without_ms / planted_ms, 3),
        "verdict": found.verdict.value, "first": first,
        "stall": found.stall.as_dict(), "copy": copy and copy.as_dict(),
        "starvation_by_events": statistics.mean(seen) if seen else None,
        "utilisation": session.probes.utilisation_symptom,
        "right": found.verdict.bound == p.starved,
    }  # fmt: skip


def recording(device: Device, seconds: float) -> list[Document]:
    """What recording a loop costs, by length of step: bare and recorded in turn, five pairs."""
    rows, batches = [], [torch.ones(16, 3, 32, 32)] * 1_000_000
    for milliseconds in STEPS_MS:
        work = device.work(milliseconds)

        def step(batch: Any, work: Callable[[], None] = work) -> None:
            batch.to(device.name, non_blocking=True)
            work()

        shares = []
        for _ in range(5):
            kinds, taken = [True, False], dict[bool, float]()
            random.shuffle(kinds)
            for watched in kinds:
                loader = Recorder().watch(batches) if watched else batches
                taken[watched] = bare_period(loader, step, seconds / len(STEPS_MS) / 10)
            shares.append(taken[True] / taken[False] - 1)
        cost = round(statistics.median(shares), 4)
        rows.append({"step_ms": milliseconds, "cost": cost, "of_pairs": sorted(shares)})
    return rows


# ---- one file and one page ----


def part(name: str, work: Callable[[], Any]) -> Any:
    """What a part found; what fails is a sentence, and the next part follows."""
    begin = time.perf_counter()
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - whatever a device does, the other parts count
        found = {"failed_with": f"{type(error).__name__}: {error}".splitlines()[0]}
    print(f"{name}: {time.perf_counter() - begin:.0f} s  {found}", flush=True)
    return found


def lines_of(found: Document) -> list[str]:
    """The parts but the table, a line each."""
    words = "PRETENDED on a CPU, no figure of a GPU" if found["pretended"] else found["device"]
    lines = [f"on_a_gpu.py, {words}; torch {found['torch']}, CUDA {found['cuda']}"]
    for name, value in found.items():
        rows = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
        for row in rows:
            shown = {k: v for k, v in row.items() if k != "of_pairs"}
            lines.append(f"{name}: " + ", ".join(f"{k} {v}" for k, v in shown.items()))
    return lines


def page(session: Session, lines: list[str]) -> str:
    """The Markdown page."""
    rows = []
    if "precision" in session.results:
        table = summarise(measurement_from_dict(session.results["precision"]))
        rows = ["| " + " | ".join(format_row(row)) + " |" for row in table.rows]
        rows[:0] = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
        rows += ["", *(f"- {sentence}" for sentence in table.sentences)]
    text = ["## On a GPU (`make gpu`)", "", *(f"- {line}" for line in lines), "", *rows]
    return "\n".join(text) + "\n"


@measures(app)
def main(
    pretend: bool = False,
    seconds: float = 600.0,
    data: Path | None = None,
    out: Path = ROOT / "runs" / "on_a_gpu",
) -> tuple[Document, bool]:
    """Measure all of it; ends with 1 where a part failed or a verdict was wrong."""
    if not pretend and not torch.cuda.is_available():
        print("torch sees no GPU: `--pretend` runs all of it on a CPU, for no figure.")
        return {"skipped": "no GPU"}, True
    device = Device(pretend)
    file = out.with_suffix(".json")
    out.parent.mkdir(parents=True, exist_ok=True)
    for old in (file, file.with_name(f"{file.name}.gz")):
        old.unlink(missing_ok=True)
    share = {name: part_of * seconds for name, part_of in SHARES.items()}
    with pretended_device() if pretend else contextlib.nullcontext():
        found: Document = {
            "pretended": pretend,
            "device": "cpu" if pretend else torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "n/a",
            "tests": part("tests", lambda: cuda_tests(device, max(240.0, share["tests"]))),
            "precision": part(
                "precision",
                lambda: precision_table(device, share["precision"], data, file),
            ),
            "copies": part("copies", lambda: host_to_device(device)),
            "pipelines": [
                part(p.name, functools.partial(pipeline, device, p, share["pipeline"]))
                for p in PIPELINES
            ],
            "recording": part("recording", lambda: recording(device, share["pipeline"])),
        }
    session = saved_table(file) or Session(created=utc_now())
    lines = lines_of(found)
    session.results["on_a_gpu"] = found
    session.notes += lines
    file.write_bytes(session.packed())  # plain, however large: a file for the repository
    out.with_suffix(".md").write_text(page(session, lines))
    print(f"{file}\n{out.with_suffix('.md')}")
    wrong = [p for p in found["pipelines"] if not p.get("right")]
    broken = "failed_with" in str(found) or found["tests"].get("failed", 0)
    return found, not broken and (pretend or not wrong)


if __name__ == "__main__":
    app()
