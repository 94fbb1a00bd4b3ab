"""Decoding: the policy for every kind of file, damage, and the memory and time it takes."""

import contextlib
import io
import os
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps, TiffImagePlugin

from audit.checking.config import Config
from audit.errors import MachineError
from audit.picture.decode import FORMATS, DecodeError, Limits, decode_picture
from audit.picture.header import MOST_PAGES, decode_memory
from audit.picture.measure import FileJob, Measurer
from audit.picture.pixels import Picture, grey_tail, orient_pixels
from audit.picture.reading import read_bytes
from audit.run.run_version import open_run
from audit.scanning.scanning import scan
from audit.sources import open_source
from tests.conftest import ROOT, picture

LIMITS = Limits()


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def photo(width: int = 320, height: int = 240, seed: int = 1) -> Image.Image:
    return Image.fromarray(picture(seed, width, height))


def jpeg(**options: Any) -> bytes:
    return encoded(photo(), "JPEG", **{"quality": 85, **options})


def facts_of(data: bytes, name: str = "a.jpg", limits: Limits = LIMITS) -> dict[str, Any]:
    return decode_picture(data, name, limits)[0]


def picture_of(data: bytes, name: str = "a.jpg") -> Picture:
    found = decode_picture(data, name, LIMITS)[1]
    assert found is not None
    return found


# ---- sound files ----


@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning")
@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind in Image.SAVE])
def test_what_pillow_writes_is_sound(kind: str) -> None:
    extension = next((e for e, k in Image.registered_extensions().items() if k == kind), ".x")
    written = 0
    for mode in ("RGB", "RGBA", "L", "P", "1", "F"):
        try:
            data = encoded(photo(64, 48).convert(mode), kind)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # it writes no such
        written += 1
        got = facts_of(data, f"a{extension}")
        assert (got["status"], got.get("error")) == ("ok", None), mode
        assert got["format"] in (kind, "BMP" if kind == "DIB" else kind), mode
        if kind in ("ICO", "CUR", "TGA"):
            assert got["detected"] in (kind, None), mode
    if not written:
        pytest.skip(f"this Pillow writes no {kind}")


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (48, 48), (256, 256)])
def test_an_icon_and_a_targa_are_told_apart(size: tuple[int, int]) -> None:
    drawn = photo(*size)
    icon = encoded(drawn, "ICO", sizes=[size], bitmap_format="bmp" if size[0] < 48 else "png")
    bitmap = encoded(drawn, "ICO", sizes=[size], bitmap_format="bmp")
    cursor, targa = bitmap[:2] + b"\x02" + bitmap[3:], encoded(drawn, "TGA")
    assert targa[:4] == cursor[:4]
    for data, kind in ((icon, "ICO"), (cursor, "CUR"), (targa, "TGA")):
        got = facts_of(data)
        assert (got["detected"], got["format"]) == (kind, kind)


def test_jpeg_facts_and_pixels() -> None:
    got = facts_of(jpeg(quality=72, subsampling=2, progressive=True))
    assert got["status"] == "ok"
    assert (got["format"], got["mode"], got["width"], got["height"]) == ("JPEG", "RGB", 320, 240)
    assert (got["jpeg_quality"], got["jpeg_subsampling"]) == (72, "4:2:0")
    assert got["progressive"] is True
    assert (got["missing_end"], got["trailing_bytes"], got["bit_depth"]) == (False, 0, 8)
    for options in ({"subsampling": 0}, {"subsampling": 2}, {"progressive": True}):
        data = jpeg(**options)
        expected = np.asarray(Image.open(io.BytesIO(data)))
        np.testing.assert_array_equal(picture_of(data).rgb, expected)


@pytest.mark.parametrize("quality", range(5, 101, 5))
def test_quality_estimate_is_exact_for_the_ijg_tables(quality: int) -> None:
    assert facts_of(jpeg(quality=quality))["jpeg_quality"] == quality


def test_one_picture_has_one_pixel_hash_whatever_holds_it() -> None:
    image = photo()
    same = [encoded(image, kind) for kind in ("PNG", "BMP", "TIFF")]
    same += [encoded(image, "WEBP", lossless=True), encoded(image.convert("RGBA"), "PNG")]
    hashes = {facts_of(data)["pixel_hash"] for data in same}
    contents = {facts_of(data)["content_hash"] for data in same}
    assert (len(hashes), len(contents)) == (1, len(same))
    others = photo(seed=2), Image.new("RGB", (20, 10)), Image.new("RGB", (10, 20))
    hashes |= {facts_of(encoded(other, "PNG"))["pixel_hash"] for other in others}
    assert len(hashes) == 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    image = photo(60, 40)
    exif = image.getexif()
    exif[0x0112] = orientation
    data = encoded(image, "PNG", exif=exif)
    got = facts_of(data, "a.png")
    assert got["orientation"] == orientation
    assert (got["width"], got["height"]) == ((60, 40) if orientation < 5 else (40, 60))
    expected = np.asarray(ImageOps.exif_transpose(image))
    np.testing.assert_array_equal(picture_of(data, "a.png").rgb, expected)
    if orientation > 1:
        np.testing.assert_array_equal(orient_pixels(picture(1, 60, 40), orientation), expected)


def test_sixteen_bits_keep_their_exposure() -> None:
    samples = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    got, shown = decode_picture(encoded(Image.fromarray(samples), "PNG"), "a.png", LIMITS)
    assert (got["mode"], got["bit_depth"]) == ("I;16", 16)
    assert shown is not None
    np.testing.assert_array_equal(shown.rgb[:, :, 0], np.rint(samples / 257.0))
    # Two pictures that differ below the eighth bit are not the same pixels.
    assert facts_of(encoded(Image.fromarray(samples ^ 1), "PNG"))["pixel_hash"] != got["pixel_hash"]


def test_floats_outside_the_unit_interval_are_stretched() -> None:
    samples = np.linspace(-3, 9, 32 * 32).reshape(32, 32).astype(np.float32)
    shown = picture_of(encoded(Image.fromarray(samples), "TIFF"), "a.tif")
    assert (shown.rgb.min(), shown.rgb.max()) == (0, 255)


def test_transparent_parts_are_shown_on_white_and_their_colour_is_not_hashed() -> None:
    pixels = np.dstack([picture(5, 50, 50), np.full((50, 50), 255, np.uint8)])
    pixels[:25, :, 3] = 0
    hidden = pixels.copy()
    hidden[:25, :, :3] = 7
    one, two = (encoded(Image.fromarray(p), "PNG") for p in (pixels, hidden))
    assert facts_of(one)["pixel_hash"] == facts_of(two)["pixel_hash"]
    shown = picture_of(one)
    assert (shown.rgb[:25] == 255).all()
    assert shown.alpha is not None
    opaque = encoded(photo().convert("RGBA"), "PNG")
    assert facts_of(opaque)["has_alpha"] is True
    assert picture_of(opaque).alpha is None


@pytest.mark.parametrize(
    ("mode", "kind", "options"),
    [
        ("P", "PNG", {}),
        ("CMYK", "JPEG", {"subsampling": 0}),
        ("CMYK", "JPEG", {"subsampling": 2}),
        ("1", "PNG", {}),
        ("RGB", "TIFF", {}),
        ("L", "JPEG", {}),
    ],
)
def test_every_mode_is_shown_in_rgb(mode: str, kind: str, options: dict[str, int]) -> None:
    data = encoded(photo().convert(mode), kind, **options)
    assert facts_of(data, "a")["status"] == "ok"
    assert picture_of(data, "a").rgb.shape == (240, 320, 3)


def test_animation_measures_the_first_frame_and_counts_all() -> None:
    frames = [photo(60, 40, seed).convert("P") for seed in range(4)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    got = facts_of(data, "a.gif")
    assert (got["frames"], got["animated"], got["status"]) == (4, True, "ok")


def test_exif_time_and_camera() -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Maker", "Model 7"
    exif.get_ifd(0x8769)[0x9003] = "2024:05:17 08:09:10"
    got = facts_of(encoded(photo(), "JPEG", exif=exif))
    assert got["exif_time"].isoformat() == "2024-05-17T08:09:10"
    assert got["exif_camera"] == "Maker Model 7"


# ---- damaged, hostile and foreign files ----


def flipped(data: bytes, count: int, seed: int = 0) -> bytes:
    rng = np.random.default_rng(seed)
    start = data.index(b"\xff\xda") + 20
    changed = bytearray(data)
    for at in rng.choice(np.arange(start, len(data) - 2), count, replace=False):
        changed[at] ^= 1 + int(rng.integers(254))
    return bytes(changed)


SOUND = encoded(photo(640, 480), "JPEG", quality=90)
DAMAGE = {
    "cut at 99.9%": SOUND[: int(len(SOUND) * 0.999)],
    "cut at 90%": SOUND[: int(len(SOUND) * 0.9)],
    "cut at 50%": SOUND[: len(SOUND) // 2],
    "zeroed block": SOUND[: len(SOUND) // 2] + bytes(2048) + SOUND[len(SOUND) // 2 + 2048 :],
    "second half zeros": SOUND[: len(SOUND) // 2] + bytes(len(SOUND) - len(SOUND) // 2),
    "256 bytes changed": flipped(SOUND, 256),
    "EOI missing": SOUND[:-2],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_seen(kind: str) -> None:
    got, shown = decode_picture(DAMAGE[kind], "a.jpg", LIMITS)
    assert got["status"] == "damaged", got
    assert got["error_kind"] in ("truncated", "corrupt")
    assert shown is not None


def test_pillow_loads_a_zeroed_block_silently_and_we_say_where_it_is() -> None:
    data = DAMAGE["zeroed block"]
    Image.open(io.BytesIO(data)).load()
    assert f"zero bytes from byte {len(SOUND) // 2:,}" in facts_of(data)["error"]
    assert 0.3 < facts_of(DAMAGE["cut at 50%"])["error_at"] < 0.7


def test_damage_baked_in_by_a_tolerant_decoder_leaves_a_grey_tail() -> None:
    shown = picture_of(SOUND[: len(SOUND) * 7 // 10])
    got = facts_of(encoded(Image.fromarray(shown.rgb), "JPEG", quality=90))
    assert got["status"] == "ok"
    assert 0.1 < got["grey_tail"] < 0.6
    assert grey_tail(picture(1, 640, 480)) == 0


def test_trailing_bytes_are_counted() -> None:
    assert facts_of(jpeg() + b"x" * 77)["trailing_bytes"] == 77
    assert facts_of(jpeg(progressive=True) + jpeg())["trailing_bytes"] == len(jpeg())
    assert facts_of(encoded(photo(), "PNG") + b"y" * 5, "a.png")["trailing_bytes"] == 5


def test_a_thumbnails_end_is_not_the_pictures_end() -> None:
    exif = Image.Exif()
    exif[0x010E] = "x"
    data = encoded(photo(), "JPEG", exif=exif.tobytes() + b"\xff\xd8\xff\xd9")
    got = facts_of(data[: len(data) * 6 // 10])
    assert (got["status"], got["missing_end"]) == ("damaged", True)


def test_truncated_png_keeps_what_came_out() -> None:
    data = encoded(photo(), "PNG")
    got, shown = decode_picture(data[: len(data) // 2], "a.png", LIMITS)
    assert (got["status"], got["error_kind"]) == ("damaged", "truncated")
    assert shown is not None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"<!DOCTYPE html><html>not found</html>", "HTML"),
        (b"%PDF-1.7\n...", "PDF"),
        (b"PK\x03\x04zipzip", "ZIP"),
        (bytes(5000), "zeros"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
        (b'{"error": "denied"}', "JSON"),
        ("plain wörds".encode(), "text"),
    ],
)
def test_what_poses_as_an_image_is_named(data: bytes, what: str) -> None:
    got = facts_of(data)
    found = got["status"], got["error_kind"], got["detected"]
    assert found == ("unreadable", "not-an-image", what)
    assert what in got["error"]


def bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    tail = chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + tail


def test_a_pixel_bomb_is_not_decoded() -> None:
    small = Limits(max_pixels=1000)
    for data, limits in ((bomb(50_000, 50_000), LIMITS), (encoded(photo(), "PNG"), small)):
        got = facts_of(data, "a.png", limits)
        assert (got["status"], got["error_kind"]) == ("unreadable", "bomb")


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    for name, size in (("empty.jpg", 0), ("big.jpg", 100)):
        (tmp_path / name).write_bytes(bytes(size))
    for name, kind in (("none.jpg", "missing"), ("empty.jpg", "empty"), ("", "io")):
        with pytest.raises(DecodeError) as caught:
            read_bytes(str(tmp_path / name), LIMITS)
        assert caught.value.kind == kind
    with pytest.raises(DecodeError, match="max_bytes is 10"):
        read_bytes(str(tmp_path / "big.jpg"), Limits(max_bytes=10))


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_after_a_true_header_never_raise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA")
    data = bytearray(encoded(photo(40, 30), kinds[seed % len(kinds)]))
    for at in rng.integers(4, len(data), 30):
        data[at] = int(rng.integers(256))
    got = facts_of(bytes(data[: int(rng.integers(8, len(data)))]))
    assert got["status"] in ("ok", "damaged", "unreadable")


@pytest.mark.parametrize(
    ("level", "tail"), [(124, 0), (125, 1), (131, 1), (132, 0), (0, 0), (255, 0)]
)
def test_a_grey_tail_is_within_three_levels_of_the_middle(level: int, tail: float) -> None:
    assert grey_tail(np.full((32, 40, 3), level, np.uint8)) == tail


def measured(path: Path, data: bytes | bytearray) -> dict[str, Any]:
    path.write_bytes(data)
    (row,) = Measurer(Limits())([FileJob(path.name, "x", str(path))]).features.to_pylist()
    return dict(row)


def test_a_header_that_says_more_frames_than_a_column_holds_is_measured(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(2)]
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:])
    data = bytearray(buffer.getvalue())
    at = data.index(b"acTL")
    data[at + 4 : at + 8] = (1 << 31).to_bytes(4, "big")
    data[at + 12 : at + 16] = zlib.crc32(data[at : at + 12]).to_bytes(4, "big")
    row = measured(tmp_path / "x.png", data)
    assert (row["status"], row["frames"]) == ("ok", (1 << 31) - 1)


def pages(order: str, big: bool, count: int) -> bytearray:
    """Return a TIFF of so many grey pages, which share their pixels."""
    width, entry, head = ("Q", 20, 16) if big else ("I", 12, 8)
    tags = [(256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, head), (277, 1), (278, 8),
            (279, 64)]  # fmt: skip
    content = b"".join(struct.pack(f"{order}HH{width}{width}", tag, 16 if big else 4, 1, value)
                       for tag, value in tags)  # fmt: skip
    assert len(content) == entry * len(tags)
    content = struct.pack(f"{order}{'Q' if big else 'H'}", len(tags)) + content
    size = len(content) + struct.calcsize(width)
    start = head + 64
    mark = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}H", 43 if big else 42)
    mark += struct.pack(f"{order}HH", 8, 0) if big else b""
    data = bytearray(mark + struct.pack(order + width, start) + bytes(range(64)))
    for page in range(1, count + 1):
        after = start + page * size if page < count else 0
        data += content + struct.pack(order + width, after)
    return data


# Pillow takes BigTIFF of the other order for TIFF of this one, and finds nothing in it.
@pytest.mark.parametrize(("order", "big"), [("<", False), (">", False), ("<", True)])
def test_pages_are_counted_as_pillow_counts_them(tmp_path: Path, order: str, big: bool) -> None:
    data = pages(order, big, 3)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == 3
    row = measured(tmp_path / "x.tif", data)
    assert (row["status"], row["frames"], row["animated"]) == ("ok", 3, False)
    assert measured(tmp_path / "y.tif", data[:-30])["frames"] == 2  # the third is cut


def test_pages_of_a_chain_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    real = TiffImagePlugin.ImageFileDirectory_v2.load
    monkeypatch.setattr(
        TiffImagePlugin.ImageFileDirectory_v2, "load",
        lambda self, fp: (loads.append(1), real(self, fp))[1],
    )  # fmt: skip
    many = pages("<", False, 3000)
    row = measured(tmp_path / "x.tif", many)
    assert (row["status"], row["frames"], len(loads) < 20) == ("ok", 3000, True)
    many[-4:] = (8 + 64).to_bytes(4, "little")  # the last leads to the first again
    assert measured(tmp_path / "y.tif", many)["frames"] == 3000
    most = bytearray(many[: 8 + 64 + 114])
    most[-4:] = len(most).to_bytes(4, "little")
    size = len(most)
    for page in range(MOST_PAGES + 5):  # directories of nothing
        most += b"\0\0" + (size + 6 * (page + 1)).to_bytes(4, "little")
    assert measured(tmp_path / "z.tif", most)["frames"] == MOST_PAGES


WIDTH, HEIGHT = 3000, 2000
# Prints by how much the resident memory grew at its peak while each file was measured, one a line.
# A process that has loaded and compiled everything forks for each: what one frees serves no other.
MEASURE = """
import os, sys
import cv2
from pathlib import Path
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer, warm_up
cv2.setNumThreads(1)  # as in a worker, and a thread does not outlive a fork
warm_up()  # what is loaded and compiled once is no cost of a file
work, (first, *paths) = Measurer(Limits()), sys.argv[1:]
def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
for path in paths:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, path
        continue
    work([FileJob("first", "", first)]).features  # loads polars, which no worker does
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    row = work([FileJob("a", "", path)]).features.to_pylist()[0]
    assert row["status"] == "ok", row
    print(status("VmHWM") - before - os.path.getsize(path), flush=True)
    os._exit(0)
"""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpeg": ("RGB", {"quality": 85}),
    "progressive.jpeg": ("RGB", {"progressive": True}),
    "turned.jpeg": ("RGB", {"orientation": 6}),
    "png": ("RGBA", {}),
    "tiff": ("F", {}),
    "webp": ("RGBA", {"method": 0}),
    "avif": ("RGBA", {"speed": 10}),
    "jpeg2000": ("RGBA", {}),
    "gif": ("P", {}),
}


def write_picture(path: Path, mode: str, options: dict[str, Any]) -> Path:
    image = Image.fromarray(picture(1, WIDTH // 8, HEIGHT // 8)).resize((WIDTH, HEIGHT))
    if "orientation" in options:
        exif = Image.Exif()
        exif[0x0112] = options["orientation"]
        options = {"exif": exif}
    if mode == "RGBA":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    else:
        image = image.convert("L" if mode == "F" else mode).convert(mode)
    image.save(path, path.name.split(".")[-1].upper(), **options)
    return path


@pytest.mark.slow
def test_no_kind_of_file_takes_more_than_was_foretold(tmp_path: Path) -> None:
    paths = [write_picture(tmp_path / kind, *options) for kind, options in KINDS.items()]
    small = tmp_path / "small.png"
    Image.fromarray(picture(2)).save(small)
    command = [sys.executable, "-c", MEASURE, str(small), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    for path, grown in zip(paths, map(int, done.stdout.split()), strict=True):
        with Image.open(path) as image:
            foretold = decode_memory(image)
        assert 0.2 * foretold < grown <= foretold, path.name


def test_a_file_that_would_take_too_much_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.webp"
    Image.fromarray(picture(3, 300, 200)).save(path)
    columns, shown = decode_picture(path.read_bytes(), "a.webp", Limits(max_memory=1_000_000))
    assert shown is None
    assert (columns["status"], columns["error_kind"]) == ("unreadable", "memory")
    assert "max_memory is 0.0 GB" in columns["error"]
    assert decode_picture(path.read_bytes(), "a.webp", Limits(max_memory=1_400_000))[1] is not None


def tiff() -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(1)).save(file, "TIFF", compression="tiff_lzw")
    return file.getvalue()


def many_scans(scans: int, side: int = 2000) -> bytes:
    """A progressive JPEG whose last scan is repeated: little to read, hours to decode."""
    file = io.BytesIO()
    Image.new("L", (side, side), 90).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


@contextlib.contextmanager
def no_file_more() -> Iterator[None]:
    """Not one file more may be opened in here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_open_files_are_no_verdict(tmp_path: Path) -> None:
    data = tiff()
    with no_file_more(), pytest.raises(MachineError, match="too many files are open"):
        read_bytes(str(tmp_path / "a.tif"), Limits())
    with no_file_more(), pytest.raises(MachineError, match="too many files are open"):
        decode_picture(data, "a.tif", Limits())


@pytest.mark.slow
def test_sound_files_stay_sound_without_a_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "a.tif").write_bytes(tiff())
    nowhere = tmp_path / "nowhere"
    script = "import tempfile; tempfile.tempdir = sys.argv[1]; command_line()"
    command = f"import sys; from audit.cli.main import command_line; {script}"
    # both ways: no folder is writable, and the one that is named does not exist
    scanned = ["scan", str(tmp_path / "pets"), "--out", str(tmp_path / "r")]
    done = subprocess.run(
        [sys.executable, "-c", command, *scanned],
        env={**os.environ, "TMPDIR": str(nowhere), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with open_run(tmp_path / "r") as store:
        assert store.rows("SELECT status FROM images") == [{"status": "ok"}]


@pytest.mark.slow
def test_a_file_that_decodes_for_hours_ends_at_its_time_limit(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(many_scans(8000))
    (folder / "b.tif").write_bytes(tiff())
    scan(
        open_source([str(folder)]), tmp_path / "run", config=Config(timeout_s=6.0), jobs=1,
        checks=["FILE"],
    )  # fmt: skip
    with open_run(tmp_path / "run") as store:
        rows = store.query("SELECT id, error_kind FROM images ORDER BY id").rows()
    assert rows == [("a.jpg", "timeout"), ("b.tif", None)]


def test_closed_streams_do_not_change_a_verdict() -> None:
    saved = os.dup(2)
    os.close(2)
    try:
        columns, shown = decode_picture(tiff(), "a.tif", Limits())
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert columns["status"] == "ok"
    assert shown is not None


IMPORTED = """
import sys
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer, warm_up
warm_up()
measured = Measurer(Limits())([FileJob("a", "", sys.argv[1]), FileJob("b", "", "absent.jpg")])
print(sorted({"polars", "pyarrow", "duckdb", "pandas"} & sys.modules.keys()))
print(measured.features["status"].to_pylist(), measured.signatures.num_rows)
"""


def test_a_worker_measures_without_libraries_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(picture(2)).save(path)
    command = [sys.executable, "-c", IMPORTED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.splitlines() == ["[]", "['ok', 'unreadable'] 1"], done.stderr
