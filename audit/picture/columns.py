"""What a scan stores per file: the keys of its row, and the columns that decoding fills."""

from __future__ import annotations

from audit.records import Column

MEASURED_KEYS: tuple[Column, ...] = (
    Column("sample_id", "VARCHAR", "the sample; unique"),
    Column("file_key", "VARCHAR", "size, mtime and ctime of the file that was measured"),
)
FILE_COLUMNS: tuple[Column, ...] = (
    Column("status", "VARCHAR", "ok | damaged (not whole) | unreadable (could not be decoded)"),
    Column(
        "error_kind",
        "VARCHAR",
        "missing | permission | empty | not-an-image | unsupported | truncated | corrupt | bomb | "
        "memory | crashed | timeout | io; null when ok",
    ),
    Column("error", "VARCHAR", "message of the decoder or the system; null when ok"),
    Column(
        "error_at",
        "DOUBLE",
        "share (0..1) of the rows that were decoded before the error; null: unknown",
    ),
    Column("content_hash", "VARCHAR", "BLAKE3-256 of the file's bytes, 64 hex digits"),
    Column(
        "pixel_hash",
        "VARCHAR",
        "XXH3-128 of the shown pixels (orientation applied, grey as RGB, alpha only where used), "
        "32 hex digits; null without a picture",
    ),
    Column(
        "detected",
        "VARCHAR",
        "content by its magic bytes: JPEG, PNG, HTML, PDF, ZIP, text, zeros, ...; null if unknown",
    ),
    Column(
        "format", "VARCHAR", "image format by content, Pillow's name; null if no decoder read it"
    ),
    Column("extension", "VARCHAR", "the file name's extension, lower case without the dot"),
    Column("width", "INTEGER", "columns of the shown picture, after EXIF orientation, px"),
    Column("height", "INTEGER", "rows of the shown picture, after EXIF orientation, px"),
    Column("mode", "VARCHAR", "Pillow mode of the file: L, RGB, RGBA, P, CMYK, I;16, ..."),
    Column("bit_depth", "INTEGER", "bits per channel"),
    Column("frames", "INTEGER", "frames or pages in the file; only the first is measured"),
    Column("animated", "BOOLEAN", "more than one frame, shown in time (GIF, APNG, WebP, AVIF)"),
    Column("orientation", "INTEGER", "EXIF orientation 1..8; 1 when absent"),
    Column("has_alpha", "BOOLEAN", "an alpha channel or a transparent colour is declared"),
    Column("icc_profile", "VARCHAR", "name of the embedded ICC profile; null without one"),
    Column("jpeg_quality", "INTEGER", "IJG quality 1..100 estimated from the luminance table"),
    Column("jpeg_subsampling", "VARCHAR", "chroma subsampling: 4:4:4, 4:2:2, 4:2:0, ..."),
    Column("progressive", "BOOLEAN", "progressive or interlaced coding"),
    Column("exif_time", "TIMESTAMP", "EXIF DateTimeOriginal; null when absent or malformed"),
    Column("exif_camera", "VARCHAR", "EXIF make, model and body serial number; null when absent"),
    Column("decoder_warnings", "VARCHAR", "warnings of the decoder, joined by '; '"),
    Column("trailing_bytes", "BIGINT", "bytes after the end of the picture's data (JPEG, PNG)"),
    Column("missing_end", "BOOLEAN", "the end marker (JPEG EOI, PNG IEND) is absent"),
    Column(
        "grey_tail",
        "DOUBLE",
        "share (0..1) of the height, from the bottom, that is the flat 128 grey that tolerant "
        "decoders use for missing data",
    ),
    Column(
        "jpeg_faults",
        "INTEGER",
        "blocks of a JPEG's scan that no encoder writes; 0 if sound; null: progressive, or not "
        "walked (`[measure] jpeg_walk`)",
    ),
    Column(
        "jpeg_shift",
        "DOUBLE",
        "log odds that from some block of a JPEG on all are too light, dark or tinted; null: too "
        "small to tell, or not walked",
    ),
)
