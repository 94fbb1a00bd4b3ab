"""FILE006: files that Pillow, OpenCV, torchvision and TensorFlow decode to different pictures.

`RULES` holds conditions on header facts and the default behaviour of each decoder: `Image.open`,
`cv2.imread(path)`, `torchvision.io.decode_image`, `tf.io.decode_image`. A test decodes a file for
every rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store


class Rule(NamedTuple):
    """One kind of file on which decoders disagree.

    `where` is SQL over the `images` view; `silent` means that decoders return different images or
    values instead of failing or adding an axis; the other fields say what each decoder returns.
    """

    kind: str
    where: str
    silent: bool
    pillow: str
    opencv: str
    torchvision: str
    tensorflow: str


# Formats that only Pillow reads, so the rules on how pixels are converted do not apply.
ONLY_PILLOW = "'TGA', 'ICO', 'CUR', 'PCX', 'SGI', 'DDS', 'ICNS', 'PSD', 'QOI', 'FLI', 'XPM', 'BLP'"
SHARED = f"format NOT IN ({ONLY_PILLOW})"
RULES: tuple[Rule, ...] = (
    Rule(
        "turned",
        "orientation > 1 AND format IN ('JPEG', 'MPO', 'PNG', 'WEBP')",
        True,
        "as stored, unless exif_transpose is called",
        "rotated upright",
        "as stored, unless apply_exif_orientation is set",
        "as stored",
    ),
    Rule(
        "CMYK",
        f"mode = 'CMYK' AND {SHARED}",
        True,
        "4 channels of ink",
        "converted to 3 channels",
        "4 channels of ink (JPEG), no TIFF",
        "converted to 3 channels (JPEG), no TIFF",
    ),
    Rule(
        "over 8 bits",
        f"bit_depth > 8 AND mode <> 'F' AND {SHARED}",
        True,
        "16-bit grey kept, but convert('RGB') clips it at 255; 16-bit colour cut to 8",
        "cut to the upper 8 bits",
        "uint16 (PNG)",
        "cut to the upper 8 bits (PNG)",
    ),
    Rule(
        "floating point",
        "mode = 'F'",
        False,
        "float32 as stored",
        "nothing (None) without IMREAD_UNCHANGED",
        "an error",
        "an error",
    ),
    Rule(
        "alpha",
        f"mode IN ('RGBA', 'LA', 'PA', 'La', 'RGBa') AND {SHARED}",
        True,
        "an extra channel; convert('RGB') shows the hidden colours",
        "dropped: the hidden colours show",
        "an extra channel",
        "an extra channel",
    ),
    Rule(
        "palette with transparency",
        f"mode = 'P' AND has_alpha AND format <> 'GIF' AND {SHARED}",
        True,
        "palette indices, unless converted",
        "colours, transparency dropped",
        "palette indices, unless a mode is given",
        "4 channels",
    ),
    Rule(
        "palette",
        f"mode = 'P' AND NOT has_alpha AND format <> 'GIF' AND {SHARED}",
        True,
        "palette indices, unless converted",
        "colours",
        "palette indices, unless a mode is given",
        "colours",
    ),
    Rule(
        "1 bit",
        f"mode = '1' AND {SHARED}",
        True,
        "booleans: 0 and 1",
        "0 and 255",
        "0 and 255 (PNG)",
        "0 and 255 (PNG), an error (BMP)",
    ),
    Rule(
        "GIF",
        "format = 'GIF' AND coalesce(frames, 1) = 1",
        False,
        "palette indices, unless converted",
        "3 channels",
        "3 channels",
        "an extra axis of 1 frame",
    ),
    Rule(
        "animation",
        "format = 'GIF' AND frames > 1",
        True,
        "the first frame",
        "the first frame",
        "all frames on an extra axis",
        "all frames on an extra axis",
    ),
    Rule(
        "animated WebP",
        "format = 'WEBP' AND frames > 1",
        True,
        "the first frame",
        "the first frame",
        "an error",
        "a crash of the whole process (2.21)",
    ),
    Rule(
        "WebP",
        "format = 'WEBP' AND coalesce(frames, 1) = 1",
        False,
        "3 channels",
        "3 channels",
        "3 channels",
        "an extra axis of 1 frame",
    ),
    Rule(
        "pages",
        "frames > 1 AND format = 'TIFF'",
        True,
        "the first page",
        "the first page",
        "an error",
        "an error",
    ),
    Rule(
        "format that torchvision and TensorFlow do not read",
        "format IN ('TIFF', 'PPM', 'JPEG2000', 'AVIF')",
        False,
        "read",
        "read",
        "an error",
        "an error",
    ),
    Rule(
        "format that torchvision does not read",
        "format IN ('BMP', 'DIB')",
        False,
        "read",
        "read",
        "an error",
        "read",
    ),
    Rule(
        "format that only Pillow reads",
        f"format IN ({ONLY_PILLOW})",
        False,
        "read",
        "nothing (None)",
        "an error",
        "an error",
    ),
)
BY_KIND: Mapping[str, Rule] = {rule.kind: rule for rule in RULES}


class DecoderDisagreement(Check):
    """Files for which the common decoders return different images or shapes, or an error.

    ## What it does
    Applies a table of rules to header data: EXIF orientation, CMYK, more than 8 bits, floating
    point, alpha, palettes, 1 bit, animation, pages, and formats that a decoder cannot read; for
    each it states what Pillow, OpenCV, torchvision and TensorFlow do by default. One finding per
    image names all kinds. It is a warning if decoders disagree silently (other pixels or values),
    and information if they fail or add an axis, because that is noticed in the first batch. A kind
    that more than `max_share` of the images have is reported once, as information: another decoder
    then changes the whole dataset in the same way.

    ## Why is this bad
    A model that is trained with one decoder and served with another gets these images rotated,
    inverted, clipped or with hidden colours, and only these: accuracy drops without an error
    message.

    ## Example
    62 of 6,000 photographs have EXIF orientation 6: OpenCV rotates them upright; Pillow,
    torchvision and TensorFlow do not.

    ## What to do
    Convert such files once (upright, 8-bit RGB, alpha composited, first frame), or set the
    conversion explicitly in the loader and in serving, and test both on one of these samples.

    ## Limits
    The table contains the defaults of the versions named in this file; options change them. Small
    differences between JPEG decoders (a few grey levels) occur in every file and are left out, as
    are colour profiles.
    """

    code = "FILE006"
    name = "decoder-disagreement"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_share: a kind that more than this share of the images has is reported once, 0..1
        min_common: and only if at least this many images have it
        """

        max_share: float = 0.5
        min_common: int = 20

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        frame, total = _matches(store)
        counts = {rule.kind: int(frame[rule.kind].sum()) for rule in RULES}
        enough = max(params.max_share * total, params.min_common - 1)
        common = [rule for rule in RULES if counts[rule.kind] > enough]
        for rule in common:
            yield self._common(frame.filter(pl.col(rule.kind)), rule, total)
        rest = [rule for rule in RULES if rule not in common]
        others = frame.filter(pl.any_horizontal(rule.kind for rule in rest))
        for row in others.iter_rows(named=True):
            yield self._single(row, [rule for rule in rest if row[rule.kind]], counts)

    def _single(
        self, row: Mapping[str, Any], rules: Sequence[Rule], counts: Mapping[str, int]
    ) -> Finding:
        silent = any(rule.silent for rule in rules)
        kinds = "; ".join(f"{rule.kind} ({counts[rule.kind]:,} files)" for rule in rules)
        # The message has room for one rule: a silent one, because nobody would notice it.
        first = max(rules, key=lambda rule: rule.silent)
        return self.about(
            row,
            f"Decoders disagree on this {row['format']}: {kinds}. {_compare(first)}.",
            {
                "kinds": ", ".join(rule.kind for rule in rules),
                "format": row["format"],
                "mode": row["mode"] or "",
                "bit_depth": row["bit_depth"] or 0,
                "orientation": row["orientation"] or 1,
                "frames": row["frames"] or 1,
                **_cells(first),
            },
            severity=self.severity if silent else Severity.INFO,
        )

    def _common(self, rows: pl.DataFrame, rule: Rule, total: int) -> Finding:
        return self.finding(
            f"dataset:{rule.kind}",
            f"Decoders disagree on {len(rows):,} of {total:,} images ({rule.kind}). "
            f"{_compare(rule)}.",
            {"kinds": rule.kind, "images": len(rows), "of": total, **_cells(rule)},
            tuple(rows["id"]),
            severity=Severity.INFO,
        )

    counts = "SELECT count(*) AS n FROM images WHERE status <> 'unreadable'"
    examined = f"The headers of all {{n:,}} images were checked against {len(RULES)} rules."


def _matches(store: Store) -> tuple[pl.DataFrame, int]:
    """Return the pictures that match a rule, a Boolean column per kind, and the count of all."""
    columns = ", ".join(f'coalesce({rule.where}, false) AS "{rule.kind}"' for rule in RULES)
    anything = " OR ".join(f'"{rule.kind}"' for rule in RULES)
    sql = f"""
        WITH marked AS (
            SELECT id, subject, format, mode,
                bit_depth, orientation, frames, {columns}
            FROM images WHERE status <> 'unreadable'
        )
        SELECT * FROM marked WHERE {anything} ORDER BY id
    """
    return store.query(sql), store.scalar(DecoderDisagreement.counts)


def _cells(rule: Rule) -> dict[str, str]:
    return {name: getattr(rule, name) for name in ("pillow", "opencv", "torchvision", "tensorflow")}


def _compare(rule: Rule) -> str:
    return (
        f"Pillow: {rule.pillow}; OpenCV: {rule.opencv}; torchvision: {rule.torchvision}; "
        f"TensorFlow: {rule.tensorflow}"
    )
