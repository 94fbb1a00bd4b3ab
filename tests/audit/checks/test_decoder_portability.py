"""FILE006's rule table against the decoders themselves: a file a rule, and what each makes of it.

TensorFlow runs in a process of its own: version 2.21 corrupts its heap on an animated WebP, which
is one of the rules.
"""

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest
from PIL import Image

from audit.checks.file_decoders import BY_KIND, RULES, _matches
from audit.picture.decode import Limits, decode_picture
from audit.testing import Case, case_store

HEIGHT, WIDTH = 32, 48


def picture() -> np.ndarray:
    """A smooth picture in which every orientation, channel and level can be told apart."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([y * 7 % 256, x * 5 % 256, (x + 2 * y) % 256], -1).astype(np.uint8)


RGB = picture()
IMAGE = Image.fromarray(RGB)
FRAMES = [Image.fromarray(np.roll(RGB, 9 * i, 1)) for i in range(3)]
GREY16 = (np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) * 40).astype(np.uint16)
RGBA = np.dstack([RGB, np.where(np.arange(WIDTH) < 20, 0, 200)[None].repeat(HEIGHT, 0)]).astype(
    np.uint8
)


def turned(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    IMAGE.save(path, exif=exif, lossless=True)


def several(path: Path) -> None:
    FRAMES[0].save(path, save_all=True, append_images=FRAMES[1:])


def palette(path: Path, **options: Any) -> None:
    IMAGE.quantize(16).save(path, **options)


H, W = HEIGHT, WIDTH
COLOUR = (H, W, 3)
UNREAD = "format that torchvision and TensorFlow do not read"
NOT_IN_TORCH = "format that torchvision does not read"
LONE = "format that only Pillow reads"


class Example(NamedTuple):
    """A file of one kind: how it is made, and the shapes that decoders give (None: no picture)."""

    kind: str
    name: str
    make: Callable[[Path], object]
    pillow: tuple[int, ...] | None = COLOUR
    opencv: tuple[int, ...] | None = COLOUR
    tensorflow: tuple[int, ...] | str | None = None
    torchvision: tuple[int, ...] | None = None
    more: tuple[str, ...] = ()


EXAMPLES = [
    Example("turned", "turned.png", turned, COLOUR, (W, H, 3), COLOUR, (3, H, W)),
    Example("turned", "turned.webp", turned, COLOUR, (W, H, 3), (1, H, W, 3), (3, H, W), ("WebP",)),
    Example("CMYK", "cmyk.jpg", lambda p: IMAGE.convert("CMYK").save(p, quality=95), (H, W, 4),
            COLOUR, COLOUR, (4, H, W)),
    Example("CMYK", "cmyk.tif", lambda p: IMAGE.convert("CMYK").save(p), (H, W, 4), more=(UNREAD,)),
    Example("over 8 bits", "grey16.png", lambda p: Image.fromarray(GREY16).save(p), (H, W),
            COLOUR, (H, W, 1), (1, H, W)),
    Example("over 8 bits", "rgb16.png", lambda p: cv2.imwrite(str(p), RGB.astype(np.uint16) * 257),
            COLOUR, COLOUR, COLOUR, (3, H, W)),
    Example("floating point", "float.tif",
            lambda p: Image.fromarray(GREY16.astype(np.float32)).save(p), (H, W), None,
            more=(UNREAD,)),
    Example("alpha", "rgba.png", lambda p: Image.fromarray(RGBA).save(p), (H, W, 4), COLOUR,
            (H, W, 4), (4, H, W)),
    Example("alpha", "la.png", lambda p: IMAGE.convert("LA").save(p), (H, W, 2), COLOUR,
            (H, W, 2), (2, H, W)),
    Example("palette", "palette.png", palette, (H, W), COLOUR, COLOUR, (1, H, W)),
    Example("palette with transparency", "trns.png", lambda p: palette(p, transparency=0), (H, W),
            COLOUR, (H, W, 4), (1, H, W)),
    Example("1 bit", "bit.png", lambda p: IMAGE.convert("1").save(p), (H, W), COLOUR, (H, W, 1),
            (1, H, W)),
    Example("1 bit", "bit.bmp", lambda p: IMAGE.convert("1").save(p), (H, W), more=(NOT_IN_TORCH,)),
    Example("GIF", "one.gif", IMAGE.save, (H, W), COLOUR, (1, H, W, 3), (3, H, W)),
    Example("animation", "many.gif", several, (H, W), COLOUR, (3, H, W, 3), (3, 3, H, W)),
    Example("WebP", "one.webp", lambda p: IMAGE.save(p, lossless=True), COLOUR, COLOUR,
            (1, H, W, 3), (3, H, W)),
    Example("animated WebP", "many.webp", several, tensorflow="crash"),
    Example("pages", "many.tif", several, more=(UNREAD,)),
    *(Example(UNREAD, f"plain.{x}", IMAGE.save) for x in ("tif", "ppm", "jp2", "avif")),
    Example(NOT_IN_TORCH, "plain.bmp", IMAGE.save, tensorflow=COLOUR),
    *(Example(LONE, f"plain.{x}", IMAGE.save, opencv=None) for x in ("tga", "pcx", "sgi", "dds")),
]  # fmt: skip
SAME = [
    ("plain.png", IMAGE.save),
    ("plain.jpg", lambda p: IMAGE.save(p, quality=95)),
    ("progressive.jpg", lambda p: IMAGE.save(p, quality=95, progressive=True)),
    ("several.png", several),
    ("mpo.jpg", lambda p: FRAMES[0].save(p, "MPO", save_all=True, append_images=FRAMES[1:])),
    ("grey.png", lambda p: IMAGE.convert("L").save(p)),
]
IDS = [example.name for example in EXAMPLES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoders")
    for name, make in [(e.name, e.make) for e in EXAMPLES] + SAME:
        make(folder / name)
    return folder


def kinds(path: Path) -> set[str]:
    """The kinds that the table sees in the facts that a scan measures."""
    facts, picture = decode_picture(path.read_bytes(), path.name, Limits())
    assert picture is not None
    with case_store(Case("one file", [{"id": path.name, **facts}])) as store:
        frame, total = _matches(store)
    assert total == 1
    return {rule.kind for rule in RULES if len(frame) and frame[rule.kind][0]}


def test_every_rule_has_an_example():
    assert {example.kind for example in EXAMPLES} == set(BY_KIND)


KINDS: dict[str, set[str]] = {e.name: {e.kind, *e.more} for e in EXAMPLES} | {
    name: set() for name, _ in SAME
}


@pytest.mark.parametrize("name", KINDS)
def test_the_table_recognises_the_file(name: str, folder: Path):
    assert kinds(folder / name) == KINDS[name]  # none: a file on which decoders agree


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
def test_pillow_and_opencv(example: Example, folder: Path):
    path = folder / example.name
    with Image.open(path) as image:
        assert np.array(image).shape == example.pillow
    seen = cv2.imread(str(path))
    assert (None if seen is None else seen.shape) == example.opencv


def test_silent_disagreements_are_in_the_pixels(folder: Path):
    def pillow(name: str) -> np.ndarray:
        with Image.open(folder / name) as image:
            return np.array(image)

    def opencv(name: str) -> np.ndarray:
        return cv2.imread(str(folder / name))[..., ::-1]

    assert np.array_equal(np.rot90(pillow("turned.png"), -1), opencv("turned.png"))
    with Image.open(folder / "grey16.png") as image:
        assert pillow("grey16.png").dtype == np.uint16
        clipped = np.array(image.convert("RGB"))[..., 0]
    assert np.array_equal(clipped, np.minimum(GREY16, 255))
    assert np.array_equal(opencv("grey16.png")[..., 0], GREY16 >> 8)
    # Where alpha is 0 the colours that nobody was meant to see come out.
    assert np.array_equal(opencv("rgba.png")[:, :20], RGB[:, :20])
    assert pillow("palette.png").max() < 16 < opencv("palette.png").max()
    assert pillow("bit.png").dtype == bool
    assert set(np.unique(opencv("bit.png"))) == {0, 255}


def answers(paths: list[Path]) -> dict[str, Any] | None:
    """Run TensorFlow in its own process; None if the process died."""
    done = subprocess.run(
        [sys.executable, "-c", TENSORFLOW, *map(str, paths)],
        capture_output=True,
        check=False,
        env={"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )
    return pickle.loads(done.stdout) if done.returncode == 0 else None


TENSORFLOW = """
import sys, pickle, os
import tensorflow as tf

found = {}
for path in sys.argv[1:]:
    try:
        array = tf.io.decode_image(open(path, "rb").read()).numpy()
        found[os.path.basename(path)] = (array.shape, str(array.dtype), array.min(), array.max())
    except tf.errors.InvalidArgumentError:
        found[os.path.basename(path)] = (None, "", 0, 0)
sys.stdout.buffer.write(pickle.dumps(found))
"""


needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)


@pytest.mark.slow
@needs_tensorflow
def test_tensorflow(folder: Path):
    wanted = {e.name: e.tensorflow for e in EXAMPLES if e.tensorflow != "crash"}
    found = answers([folder / name for name in wanted])
    assert found is not None
    assert {name: shape for name, (shape, *_) in found.items()} == wanted
    assert found["grey16.png"][1] == "uint8"
    assert found["bit.png"][2:] == (0, 255)


@pytest.mark.slow
@needs_tensorflow
def test_tensorflow_dies_of_an_animated_webp(folder: Path):
    from importlib.metadata import PackageNotFoundError, version

    try:
        seen = version("tensorflow-cpu")
    except PackageNotFoundError:
        seen = version("tensorflow")
    if not seen.startswith("2.21."):
        pytest.skip(f"the table speaks of TensorFlow 2.21, this is {seen}")
    assert answers([folder / "many.webp"]) is None


def test_torchvision(folder: Path):
    decode = pytest.importorskip("torchvision").io.decode_image
    for example in EXAMPLES:
        path = str(folder / example.name)
        if example.torchvision is None:
            with pytest.raises(RuntimeError):
                decode(path)
        else:
            assert tuple(decode(path).shape) == example.torchvision, example.name
    assert str(decode(str(folder / "grey16.png")).dtype) == "torch.uint16"
