"""The walk over a JPEG's codes: silent on sound files, and on what the planted change says."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from simplejpeg import encode_jpeg

from audit.checking.config import load_config
from audit.checks.file_hidden_damage import HiddenDamage
from audit.errors import UsageError
from audit.picture.decode import Limits, decode_picture
from audit.picture.jpeg_walk import count_faults, read_scan, shift_evidence
from audit.picture.pixels import Pixels
from audit.run import generations
from audit.scanning import scanning
from audit.sources import open_source

LEAST = HiddenDamage.Params().min_jpeg_shift
KIND = ((1, 1), [4, 4, 4])


def picture(height: int = 200, width: int = 240, seed: int = 1) -> Pixels:
    """Smooth shapes and some grain, well within the range."""
    rng = np.random.default_rng(seed)
    small = rng.uniform(70, 180, (height // 20, width // 20, 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    grain = rng.normal(0, 4, (height, width, 1))
    return np.clip(smooth + grain, 20, 235).astype(np.uint8)


def saved(pixels: Pixels, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def shifted(pixels: Pixels, row: int, place: int, by: int, block: int = 8) -> Pixels:
    """All blocks from one on are lighter or darker, as after a wrong difference of means."""
    out = pixels.astype(np.int16)
    out[row * block : (row + 1) * block, place * block :] += by
    out[(row + 1) * block :] += by
    return np.clip(out, 0, 255).astype(np.uint8)


def walked(data: bytes) -> dict[str, object]:
    columns = decode_picture(data, "a.jpg", Limits(), jpeg_walk=True)[0]
    return {name: columns.get(name) for name in ("status", "jpeg_faults", "jpeg_shift")}


@pytest.mark.parametrize("chroma", [0, 1, 2])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_sound_files_are_silent(chroma: int, mode: str) -> None:
    pixels = np.asarray(Image.fromarray(picture()).convert(mode))
    for quality, progressive, restart in product((30, 90), (False, True), (0, 5)):
        data = saved(
            pixels, quality=quality, subsampling=chroma, progressive=progressive,
            restart_marker_blocks=restart,
        )  # fmt: skip
        found = walked(data)
        assert found["jpeg_faults"] == (None if progressive else 0)
        assert found["jpeg_shift"] == 0


def test_a_frame_on_the_grid_and_a_slanted_horizon_are_no_damage() -> None:
    framed, horizon = picture().copy(), picture().copy()
    framed[:32], framed[-32:] = 20, 20
    below = np.arange(200)[:, None] > 90 + np.arange(240)[None] / 12
    horizon[below] = np.clip(horizon[below].astype(int) - 60, 0, 255)
    for pixels in (framed, horizon):
        for quality in (40, 95):
            assert walked(saved(pixels, quality=quality, subsampling=0))["jpeg_shift"] == 0


# Near the ends of a row few blocks tell the step from an edge along the whole row.
@pytest.mark.parametrize(("by", "place"), [(-20, 10), (12, 15), (40, 3), (-40, 27), (12, 20)])
def test_a_shift_from_one_block_on_is_seen(by: int, place: int) -> None:
    evidence = shift_evidence(shifted(picture(), 7, place, by), *KIND)
    assert evidence is not None
    assert evidence > LEAST


def test_a_shift_that_begins_with_its_row_may_be_an_edge() -> None:
    assert shift_evidence(shifted(picture(), 7, 0, 30), *KIND) == 0


def test_a_small_picture_cannot_be_told() -> None:
    assert shift_evidence(picture(40, 40), *KIND) is None
    assert shift_evidence(picture(200, 40), *KIND) is None


def test_changed_bytes_that_no_decoder_reports_are_seen() -> None:
    """Of quiet changes that a person would see, most are reported; the sound file never is."""
    pixels = picture()
    data = saved(pixels, quality=90, subsampling=0)
    sound, scan = np.asarray(Image.open(io.BytesIO(data)), np.int16), read_scan(data)
    assert scan is not None
    rng, seen, quiet, faulty = np.random.default_rng(3), 0, 0, 0
    for at in rng.integers(scan.start, len(data) - 2, 60):
        out = bytearray(data)
        out[at] ^= int(rng.integers(1, 256))
        found = walked(bytes(out))
        differs = np.abs(np.asarray(Image.open(io.BytesIO(out)), np.int16) - sound).max(2)
        if found["status"] == "ok" and (differs >= 8).mean() > 0.01:
            quiet += 1
            faulty += bool(found["jpeg_faults"])
            seen += bool(found["jpeg_faults"]) or float(str(found["jpeg_shift"])) > LEAST
    assert quiet >= 10
    assert faulty >= 3
    assert seen >= 0.7 * quiet


def test_a_header_that_lies_is_not_walked() -> None:
    data = saved(picture(), quality=80)
    for at in range(2, 640, 7):
        for value in (0, 0xFF, data[at] ^ 0x11):
            count_faults(data[:at] + bytes([value]) + data[at + 1 :])
    assert [count_faults(data[:n]) for n in (0, 2, 3, 30, 200)] == [None] * 5
    assert count_faults(data[: len(data) // 2]) == 0


@pytest.mark.slow
def test_a_scan_walks_only_where_asked(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "sound.jpg").write_bytes(encode_jpeg(picture(seed=2), quality=85))
    damaged = shifted(picture(), 7, 15, 30)
    (folder / "damaged.jpg").write_bytes(encode_jpeg(damaged, quality=85, colorsubsampling="444"))
    settings = tmp_path / "audit.toml"
    seen = []
    for switch in ("false", "true"):
        settings.write_text(f"[measure]\njpeg_walk = {switch}\n")
        scanning.scan(
            open_source([str(folder)]), tmp_path / "run", jobs=1, checks=["FILE003"],
            config=load_config(settings),
        )  # fmt: skip
        with generations.open_run(tmp_path / "run") as store:
            walked_files = store.scalar("SELECT count(jpeg_faults) FROM features")
            seen.append((walked_files, store.query("SELECT sample_id FROM finding_samples").rows()))
    assert seen == [(0, []), (2, [("damaged.jpg",)])]
    settings.write_text("[measure]\njpeg_walk = 1\n")
    with pytest.raises(UsageError, match="true or false"):
        load_config(settings)
