"""FILE004: files whose extension belongs to another format than their content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from audit.checking.check import Check
from audit.records import Finding, Severity
from audit.run.store import Store

# Extensions by content; MPO is JPEG, camera raw formats are TIFF inside.
JPEG = "jpg jpeg jpe jfif jif pjpeg pjp thm"
EXTENSIONS: Mapping[str, str] = {
    "JPEG": JPEG, "MPO": f"mpo {JPEG}", "PNG": "png apng", "GIF": "gif", "WEBP": "webp",
    "TIFF": "tif tiff gtiff geotiff lsm svs dng nef cr2 arw pef raw ndpi scn btf tf8",
    "BMP": "bmp dib rle", "DIB": "bmp dib", "AVIF": "avif avifs heif", "HEIF": "heic heif hif",
    "JPEG2000": "jp2 j2k j2c jpc jpf jpx jpm", "PPM": "ppm pgm pbm pnm pfm pam p7",
    "ICO": "ico", "CUR": "cur", "ICNS": "icns", "TGA": "tga icb vda vst", "PCX": "pcx",
    "DCX": "dcx",
    "DDS": "dds", "SGI": "sgi rgb rgba bw", "SUN": "ras sun", "PSD": "psd", "QOI": "qoi",
    "XBM": "xbm", "XPM": "xpm", "FITS": "fits fit fts", "EPS": "eps ps", "FLI": "fli flc",
}  # fmt: skip


# Ids such as `17` and `a.jpg#2` are no names of files.
OWN_EXTENSION = r"[^/]\.([^./]*)$"
# What a Dataset object gave as encoded bytes lies under a name of this program's.
NAMED_HERE = r"/pictures/[0-9a-f]{2}/[0-9a-f]{30}\.img$"


class WrongExtension(Check):
    """Files whose extension does not belong to the format of their content.

    ## What it does
    Compares the file name's extension with the format that the decoder found: .jpg, .jpeg, .jpe and
    .jfif are all JPEG, .tif and .tiff are TIFF, and multi-image JPEGs (MPO) count as JPEG. A file
    without an extension is reported as information. If more than `max_share` of the images have
    the same mismatch, one finding lists them all.

    ## Why is this bad
    Loaders that choose the decoder by name fail or skip the file; loaders that look at the content
    do not, so two libraries load different datasets. Such files often came from another source.

    ## Example
    `dog/0003.jpg` is a PNG: someone renamed it instead of converting it.

    ## What to do
    Rename the file to match its content, also in labels and manifests.

    ## Limits
    Only files that can be decoded are checked. Formats that are not in this check's table are left
    out.
    """

    code = "FILE004"
    name = "wrong-extension"
    severity = Severity.WARNING

    @dataclass(frozen=True)
    class Params:
        """max_share: a mismatch that more than this share of the images has is reported once, 0..1
        min_common: and only if at least this many images have it
        """

        max_share: float = 0.5
        min_common: int = 20

    def find(self, store: Store, params: Params) -> Iterator[Finding]:
        belongs = [f"{name}/{e}" for name, all_e in EXTENSIONS.items() for e in all_e.split()]
        sql = """
            SELECT id, subject, format, CASE WHEN contains(uri, '://') THEN extension ELSE own END
                AS extension
            FROM (SELECT *, lower(regexp_extract(uri, $1, 1)) AS own FROM images)
            WHERE status <> 'unreadable' AND format IN (SELECT unnest($2))
                AND concat(format, '/', lower(extension)) NOT IN (SELECT unnest($3))
                AND concat(format, '/', own) NOT IN (SELECT unnest($3))
                AND NOT (extension = '' AND starts_with(uri, 'pack+'))
                AND NOT regexp_matches(uri, $4)
            ORDER BY id
        """
        wrong = store.query(sql, [OWN_EXTENSION, list(EXTENSIONS), belongs, NAMED_HERE])
        total = store.scalar("SELECT count(*) FROM images WHERE status <> 'unreadable'")
        for (name, extension), rows in wrong.group_by(["format", "extension"], maintain_order=True):
            kind = _describe(str(name), str(extension))
            severity = self.severity if extension else Severity.INFO
            evidence = {"format": str(name), "extension": str(extension)}
            if len(rows) > params.max_share * total and len(rows) >= params.min_common:
                yield self.finding(
                    f"dataset:{name}-as-{extension or 'nothing'}",
                    f"{len(rows):,} of {total:,} images: each file {kind}. Rename them together.",
                    {**evidence, "images": len(rows), "of": total},
                    tuple(rows["id"]),
                    severity=severity,
                )
                continue
            for row in rows.iter_rows(named=True):
                yield self.about(row, f"1 file {kind}: rename it.", evidence, severity=severity)


def _describe(name: str, extension: str) -> str:
    expected = EXTENSIONS[name].split()[0]
    if not extension:
        return f"has no extension but contains {name}, whose usual extension is .{expected}"
    return f"is named .{extension} but contains {name}, whose usual extension is .{expected}"
