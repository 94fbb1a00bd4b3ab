"""Decoding: the written policy for every kind of file, and damage that plain decoders hide."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from audit.picture.decode import FORMATS, DecodeError, Limits, decode_picture
from audit.picture.pixels import Picture, grey_tail, orient_pixels
from audit.picture.reading import read_bytes
from tests.conftest import picture

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


WRITABLE = [kind for kind in FORMATS if kind in Image.SAVE]


@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning")
@pytest.mark.parametrize("kind", WRITABLE)
def test_what_pillow_writes_is_sound(kind: str) -> None:
    extension = next((e for e, k in Image.registered_extensions().items() if k == kind), ".x")
    written = []
    for mode in ("RGB", "RGBA", "L", "P", "1", "F"):
        drawn = Image.fromarray(picture(1, 64, 48)).convert(mode)
        try:
            data = encoded(drawn, kind)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # it writes no such
        written.append(mode)
        got = facts_of(data, f"a{extension}")
        assert (got["status"], got.get("error")) == ("ok", None), mode
        assert got["format"] in (kind, "BMP" if kind == "DIB" else kind), mode
        if kind in ("ICO", "CUR", "TGA"):
            assert got["detected"] in (kind, None), mode
    if not written:
        pytest.skip(f"this Pillow writes no {kind}")


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (48, 48), (256, 256)])
def test_an_icon_and_a_targa_are_told_apart(size: tuple[int, int]) -> None:
    drawn = Image.fromarray(picture(1, *size))
    icon = encoded(drawn, "ICO", sizes=[size], bitmap_format="bmp" if size[0] < 48 else "png")
    assert (facts_of(icon)["detected"], facts_of(icon)["format"]) == ("ICO", "ICO")
    bitmap = encoded(drawn, "ICO", sizes=[size], bitmap_format="bmp")
    cursor = bitmap[:2] + b"\x02" + bitmap[3:]
    assert (facts_of(cursor)["detected"], facts_of(cursor)["format"]) == ("CUR", "CUR")
    targa = encoded(drawn, "TGA")
    assert targa[:4] == cursor[:4]
    assert (facts_of(targa)["detected"], facts_of(targa)["format"]) == ("TGA", "TGA")


def test_jpeg_pixels_equal_pillows() -> None:
    for options in ({"subsampling": 0}, {"subsampling": 2}, {"progressive": True}):
        data = jpeg(**options)
        expected = np.asarray(Image.open(io.BytesIO(data)))
        np.testing.assert_array_equal(picture_of(data).rgb, expected)


def test_jpeg_facts() -> None:
    got = facts_of(jpeg(quality=72, subsampling=2, progressive=True))
    assert got["status"] == "ok"
    assert (got["format"], got["mode"], got["width"], got["height"]) == ("JPEG", "RGB", 320, 240)
    assert (got["jpeg_quality"], got["jpeg_subsampling"]) == (72, "4:2:0")
    assert got["progressive"] is True
    assert (got["missing_end"], got["trailing_bytes"], got["bit_depth"]) == (False, 0, 8)


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
    assert facts_of(encoded(photo(seed=2), "PNG"))["pixel_hash"] not in hashes


def test_pixel_hash_tells_shapes_apart() -> None:
    tall = Image.fromarray(np.zeros((10, 20, 3), np.uint8))
    wide = Image.fromarray(np.zeros((20, 10, 3), np.uint8))
    assert (
        facts_of(encoded(tall, "PNG"))["pixel_hash"] != facts_of(encoded(wide, "PNG"))["pixel_hash"]
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    image = photo(60, 40)
    exif = Image.Exif()
    exif[0x0112] = orientation
    got, shown = decode_picture(encoded(image, "PNG", exif=exif), "a.png", LIMITS)
    assert got["orientation"] == orientation
    assert (got["width"], got["height"]) == ((60, 40) if orientation < 5 else (40, 60))
    assert shown is not None
    if orientation > 1:
        from PIL import ImageOps

        image.getexif()[0x0112] = orientation
        expected = np.asarray(ImageOps.exif_transpose(image))
        np.testing.assert_array_equal(shown.rgb, expected)
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


def test_opaque_alpha_counts_as_none() -> None:
    got, shown = decode_picture(encoded(photo().convert("RGBA"), "PNG"), "a.png", LIMITS)
    assert got["has_alpha"] is True
    assert shown is not None
    assert shown.alpha is None


def test_palette_cmyk_bilevel_and_lab_are_shown_in_rgb() -> None:
    image = photo()
    for name, data in {
        "palette": encoded(image.convert("P"), "PNG"),
        "cmyk": encoded(image.convert("CMYK"), "JPEG", subsampling=0),
        "cmyk with chroma subsampling": encoded(image.convert("CMYK"), "JPEG", subsampling=2),
        "bilevel": encoded(image.convert("1"), "PNG"),
        "lab": encoded(image.convert("RGB"), "TIFF"),
        "grey jpeg": encoded(image.convert("L"), "JPEG"),
    }.items():
        got, shown = decode_picture(data, "a", LIMITS)
        assert got["status"] == "ok", name
        assert shown is not None
        assert shown.rgb.shape == (240, 320, 3), name


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


DAMAGE = {
    "cut at 99.9 %": lambda d: d[: int(len(d) * 0.999)],
    "cut at 90 %": lambda d: d[: int(len(d) * 0.9)],
    "cut at 50 %": lambda d: d[: len(d) // 2],
    "zeroed block": lambda d: d[: len(d) // 2] + bytes(2048) + d[len(d) // 2 + 2048 :],
    "second half zeros": lambda d: d[: len(d) // 2] + bytes(len(d) - len(d) // 2),
    "256 bytes changed": lambda d: flipped(d, 256),
    "EOI missing": lambda d: d[:-2],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_seen(kind: str) -> None:
    sound = encoded(photo(640, 480), "JPEG", quality=90)
    got, shown = decode_picture(DAMAGE[kind](sound), "a.jpg", LIMITS)
    assert got["status"] == "damaged", got
    assert got["error_kind"] in ("truncated", "corrupt")
    assert shown is not None


def test_pillow_loads_a_zeroed_block_silently_and_we_say_where_it_is() -> None:
    sound = encoded(photo(640, 480), "JPEG", quality=90)
    data = DAMAGE["zeroed block"](sound)
    Image.open(io.BytesIO(data)).load()
    error = facts_of(data)["error"]
    assert f"zero bytes from byte {len(sound) // 2:,}" in error


def test_a_cut_file_says_how_much_came_out() -> None:
    sound = encoded(photo(640, 480), "JPEG", quality=90)
    at = facts_of(sound[: len(sound) // 2])["error_at"]
    assert 0.3 < at < 0.7


def test_damage_baked_in_by_a_tolerant_decoder_leaves_a_grey_tail() -> None:
    sound = encoded(photo(640, 480), "JPEG", quality=90)
    shown = picture_of(sound[: len(sound) * 7 // 10])
    again = encoded(Image.fromarray(shown.rgb), "JPEG", quality=90)
    got = facts_of(again)
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
    assert (got["status"], got["error_kind"]) == ("unreadable", "not-an-image")
    assert got["detected"] == what
    assert what in got["error"]


def bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    tail = chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + tail


def test_a_pixel_bomb_is_not_decoded() -> None:
    got = facts_of(bomb(50_000, 50_000), "a.png")
    assert (got["status"], got["error_kind"]) == ("unreadable", "bomb")
    small = Limits(max_pixels=1000)
    assert facts_of(encoded(photo(), "PNG"), "a.png", small)["error_kind"] == "bomb"


def test_files_that_cannot_be_read_say_why(tmp_path: Any) -> None:
    empty = tmp_path / "empty.jpg"
    empty.write_bytes(b"")
    for path, limits, kind in (
        (tmp_path / "none.jpg", LIMITS, "missing"),
        (empty, LIMITS, "empty"),
        (tmp_path, LIMITS, "io"),
    ):
        with pytest.raises(DecodeError) as caught:
            read_bytes(str(path), limits)
        assert caught.value.kind == kind
    big = tmp_path / "big.jpg"
    big.write_bytes(bytes(100))
    with pytest.raises(DecodeError, match="max_bytes is 10"):
        read_bytes(str(big), Limits(max_bytes=10))


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
