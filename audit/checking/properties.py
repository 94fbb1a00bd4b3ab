"""Properties: what is known of each picture beside what it shows, as one table of numbers.

A property is *nuisance* (how the file was made), a *mark* (a frame, or what recurs in one class),
*light*, *look* (colours, edges) or *witness* (no finding of its own: another needs it to agree).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from audit.run.store import Store
from audit.statistics.association import class_sums

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Bits missing from a normal histogram: 0.5 in photographs, 3 and more in strokes and screens.
MISSING_TONES = "log2(255 * greatest(contrast, 0.0001) * 4.1327) - entropy"
FEW_TONES = 2.5  # bits: where so many are missing, there is no texture to measure

# name: SQL over the view `images`
LIGHT: Mapping[str, str] = {
    "brightness": "brightness", "contrast": "contrast",
    # of strokes they are what is drawn, not how: unknown without texture
    "sharpness": f"CASE WHEN {MISSING_TONES} <= {FEW_TONES} THEN sharpness END",
    "noise": f"CASE WHEN {MISSING_TONES} <= {FEW_TONES} THEN ln(noise + 0.0005) END",
    "border brightness": "0.299 * border_red + 0.587 * border_green + 0.114 * border_blue",
    "border spread": "border_spread", "aspect": "ln(aspect)",
}  # fmt: skip
LOOK: Mapping[str, str] = {
    "saturation": "saturation", "edge density": "edge_density", "entropy": "entropy",
    "red over green": "ln((red + 0.002) / (green + 0.002))",
    "blue over green": "ln((blue + 0.002) / (green + 0.002))",
}  # fmt: skip
# What is added at the edge or over everything.
PLACE: Mapping[str, str] = {
    "a red or green cast": "cast_red", "a blue or yellow cast": "cast_blue",
}  # fmt: skip
# The border's own tint is no shortcut (grass, sky) and none of a tint's parts: it bears witness.
WITNESS: Mapping[str, str] = {
    "border red over green": "ln((border_red + 0.01) / (border_green + 0.01))",
    "border blue over green": "ln((border_blue + 0.01) / (border_green + 0.01))",
}
# Measured over the whole picture, subject and all: a shortcut only if another says so too.
BACKED_BY: Mapping[str, str] = {
    "brightness": "border brightness", "contrast": "border spread",
    "sharpness": "noise", "noise": "sharpness",
    "a red or green cast": "border red over green",
    "a blue or yellow cast": "border blue over green",
}  # fmt: skip
FRAME, LEAST_FRAME = "a frame of one colour", 0.01
NUISANCE: Mapping[str, str] = {
    "pixels": "ln(pixels)", "JPEG quality": "jpeg_quality :: DOUBLE",
}  # fmt: skip
CATEGORIES: Mapping[str, str] = {
    "format": "format", "mode": "mode",
    "size": "concat(greatest(width, height), ' x ', least(width, height))",
    "JPEG quality": "jpeg_quality :: VARCHAR", "chroma subsampling": "jpeg_subsampling",
    "progressive": "progressive :: VARCHAR", "colour profile": "icc_profile",
    "EXIF camera": "exif_camera", "EXIF": "CASE WHEN exif_camera IS NOT NULL THEN 'a camera' END",
    "EXIF orientation": "nullif(orientation, 1) :: VARCHAR",
}  # fmt: skip
# Columns that the picture's own measurement gives: what a check that reads the table declares.
MEASURED_COLUMNS = (
    "brightness", "contrast", "sharpness", "noise", "saturation", "edge_density", "entropy", "red",
    "green", "blue", "border_red", "border_green", "border_blue", "border_spread", "frame",
    "cast_red", "cast_blue", "jpeg_quality", "format", "mode", "jpeg_subsampling",
    "progressive", "icc_profile", "exif_camera", "orientation",
)  # fmt: skip
MAX_LEVELS = 30  # frequent values of a category that become columns
MIN_LEVEL = 10  # pictures that a value must have to become a column
WORD = r"\p{L}{2,}"  # a word of a file name: digits count, they do not name
# Columns of a manifest that say what the label says, by their names.
NAMES_OF_LABELS = re.compile(r"label|class|categor|target|annotat|synset|wnid|answer|truth", re.I)
PURE = 0.98  # a value belongs to one class if so much of it does: labels have errors


@dataclass(frozen=True, slots=True)
class Property:
    """A column: `name` for people, `source` of its values, `level` for a 0/1 value.

    `of`: the only class that it is tested for.
    """

    name: str
    source: str
    kind: str  # nuisance | mark | light | look | witness
    level: bool
    of: str | None = None


@dataclass(frozen=True, slots=True)
class PropertyTable:
    """n pictures by p properties, with class, split and unit (what counts once); -1: none."""

    ids: NDArray[np.str_]
    values: Floats
    properties: Sequence[Property]
    label: Ints
    split: Ints
    unit: Ints
    labels: Sequence[str]
    splits: Sequence[str]
    left_out: Sequence[str] = ()  # columns that name the class

    def rows(self, mask: NDArray[np.bool_]) -> PropertyTable:
        """Return the pictures of a mask."""
        kept = {n: getattr(self, n)[mask] for n in ("ids", "values", "label", "split", "unit")}
        return replace(self, **kept)

    def of_kind(self, *kinds: str) -> PropertyTable:
        """Return the properties of some kinds."""
        chosen = [i for i, p in enumerate(self.properties) if p.kind in kinds]
        return replace(
            self, values=self.values[:, chosen], properties=[self.properties[i] for i in chosen]
        )

    def by_unit(self) -> PropertyTable:
        """Return one row for each unit, class and split: the mean of its pictures."""
        # one number for the three of them; each is -1 at the least
        keys = self.unit
        for some in (self.label, self.split):
            keys = keys * (some.max(initial=-1) + 2) + some
        _, first, code = np.unique(keys, return_index=True, return_inverse=True)
        if len(first) == len(keys):
            return self
        known = np.isfinite(self.values)
        counts = class_sums(known.astype(np.float64), code, len(first))
        sums = class_sums(np.where(known, self.values, 0.0), code, len(first))
        means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
        one = self.rows(np.isin(np.arange(len(keys)), first))
        order = np.argsort(first)  # `rows` keeps the order of the pictures
        return replace(one, values=means[order])


def property_table(store: Store) -> PropertyTable:
    """Return the properties of every sound picture; columns that do not vary are left out."""
    import polars as pl

    numeric = {**LIGHT, **PLACE, **LOOK, **WITNESS, **NUISANCE}
    named = [f'{sql} AS "{name}"' for name, sql in numeric.items()]
    named += [f'{sql} AS "category {name}"' for name, sql in CATEGORIES.items()]
    frame = store.query(f"""
        SELECT i.id, i.label, i.split, coalesce(nullif(trim(i.group_key), ''), p.unit) AS unit,
            regexp_replace(split_part(i.id, '/', -1), '\\.[^.]*$', '') AS stem, frame,
            {", ".join(named)}
        FROM images i JOIN pictures p USING (id)
        WHERE i.status = 'ok' AND i.pixels > 0 AND NOT p.blank ORDER BY i.id
    """)
    kinds = dict.fromkeys((*LIGHT, *PLACE), "light") | dict.fromkeys(LOOK, "look")
    kinds |= dict.fromkeys(WITNESS, "witness")
    columns: list[tuple[Property, Floats]] = [
        (Property(n, n, kinds.get(n, "nuisance"), False), frame[n].cast(pl.Float64).to_numpy())
        for n in numeric
    ]
    framed = (frame["frame"].fill_null(0.0) > LEAST_FRAME).cast(pl.Float64).to_numpy()
    columns += [(Property(FRAME, FRAME, "mark", True), framed), *_marks(store, frame)]
    for name in CATEGORIES:
        columns += _levels(frame[f"category {name}"], name, f"{name} {{}}")
    words, named_by_words = _words(frame)
    declared, named_by_columns = _metadata(store, frame)
    columns += words + declared
    kept = [(p, v) for p, v in columns if _varies(v)]
    values = np.stack([v for _, v in kept], axis=1) if kept else np.empty((len(frame), 0))
    label, labels = _codes(frame["label"])
    split, splits = _codes(frame["split"])
    return PropertyTable(
        frame["id"].to_numpy(), values, [p for p, _ in kept], label, split,
        _codes(frame["unit"])[0], labels, splits, [*named_by_words, *named_by_columns],
    )  # fmt: skip


def _varies(values: Floats) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 0 and float(known.max()) > float(known.min())


def _codes(column: pl.Series) -> tuple[Ints, list[str]]:
    """Return the number of each value, -1 for none or blanks, and the values."""
    import polars as pl

    text = column.cast(pl.String)
    text = text.set(text.str.strip_chars() == "", None)
    names = text.drop_nulls().unique().sort()
    codes = text.cast(pl.Enum(names)).to_physical().cast(pl.Int64)
    return codes.fill_null(-1).to_numpy(), names.to_list()


def _marks(store: Store, frame: pl.DataFrame) -> list[tuple[Property, Floats]]:
    """Return what each picture has of each mark of a class; NaN where it was not looked for."""
    marks = store.query("SELECT * FROM class_marks ORDER BY label, place").partition_by(
        "label", "place", as_dict=True
    )
    found = []
    for (label, place), scores in marks.items():
        of = frame.select("id").join(
            scores, left_on="id", right_on="sample_id", how="left", maintain_order="left"
        )
        prop = Property(f"a mark at the {place}", f"mark {place}", "mark", False, str(label))
        found.append((prop, of["score"].to_numpy()))
    return found


def _levels(column: pl.Series, source: str, wording: str) -> list[tuple[Property, Floats]]:
    codes, names = _codes(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    frequent = [k for k in np.argsort(-counts, kind="stable") if counts[k] >= MIN_LEVEL]
    properties = [Property(wording.format(names[k]), source, "nuisance", True) for k in frequent]
    columns = [(codes == k).astype(np.float64) for k in frequent[:MAX_LEVELS]]
    return list(zip(properties, columns, strict=False))


def _words(frame: pl.DataFrame) -> tuple[list[tuple[Property, Floats]], list[str]]:
    """Return a column for each frequent word of the file names, without those that name classes."""
    import polars as pl

    said = frame.select(
        pl.int_range(pl.len()).alias("row"),
        pl.col("label"),
        pl.col("stem").str.to_lowercase().str.extract_all(WORD).list.unique().alias("word"),
    )
    said = said.explode("word").drop_nulls("word")
    counts = said.group_by("word").len().filter(pl.col("len") >= MIN_LEVEL)
    words = counts.sort("len", "word", descending=[True, False])["word"].to_list()[:MAX_LEVELS]
    labels = [x.casefold() for x in frame["label"].drop_nulls().unique().to_list()]

    def names_one(word: str) -> bool:
        return any(
            word == x or (min(len(word), len(x)) > 2 and (word in x or x in word)) for x in labels
        )

    columns: dict[str, Floats] = {}
    for word in words:
        if not names_one(word):
            columns[word] = np.zeros(len(frame))
            columns[word][said.filter(pl.col("word") == word)["row"].to_numpy()] = 1.0
    codes, names = _codes(frame["label"])
    if columns and _spells_classes(np.stack(list(columns.values()), axis=1), codes, len(names)):
        return [], ["words of file names"]
    return [
        (Property(f"the word {word!r} in the file name", "file name", "nuisance", True), values)
        for word, values in columns.items()
    ], []


def _spells_classes(columns: Floats, label: Ints, n_classes: int) -> bool:
    if n_classes < 2:
        return False
    totals = np.bincount(label[label >= 0], minlength=n_classes)
    inside = np.stack([columns[label == k].sum(0) for k in range(n_classes)])
    own = (inside >= 0.8 * columns.sum(0)) & (inside >= 0.8 * np.maximum(totals, 1)[:, None])
    return bool(2 * own.any(1).sum() >= max(n_classes, 3))


def metadata_columns(store: Store) -> list[str]:
    """Return the names of a manifest's other columns, in their order."""
    # The catalogue, because to describe an absent table would end a transaction.
    if not store.scalar("SELECT 1 FROM duckdb_tables() WHERE table_name = 'metadata'"):
        return []
    found = store.query("""
        SELECT column_name AS name FROM duckdb_columns()
        WHERE table_name = 'metadata' AND column_name <> 'sample_id' ORDER BY column_index
    """)
    return list(found["name"])


def _metadata(store: Store, frame: pl.DataFrame) -> tuple[list[tuple[Property, Floats]], list[str]]:
    """Return the columns of the manifest as properties, without those that name the class."""
    import polars as pl

    known = metadata_columns(store)
    if not known:
        return [], []
    table = store.query("SELECT * FROM metadata")
    joined = frame.select("id", "label").join(
        table, left_on="id", right_on="sample_id", how="left", maintain_order="left"
    )
    label = joined["label"]
    found: list[tuple[Property, Floats]] = []
    left_out: list[str] = []
    for name in known:
        column = joined[name] if name in joined.columns else joined[f"{name}_right"]
        if names_class(name, column, label):
            left_out.append(name)
        elif column.dtype.is_numeric() and column.n_unique() > MAX_LEVELS:
            if not _numbers_rows(column, table[name]):
                prop = Property(name, f"column {name}", "nuisance", False)
                found.append((prop, column.cast(pl.Float64).to_numpy()))
        elif column.n_unique() <= max(MAX_LEVELS, len(column) // 20):
            found += _levels(column, f"column {name}", name + " = {}")
    return found, left_out


def _numbers_rows(column: pl.Series, listed: pl.Series) -> bool:
    """Say whether a column numbers the rows: unique values, or a count that begins again by part.

    `listed`: the column of all rows, undecodable pictures too.
    """
    if not column.dtype.is_integer():
        return False
    if column.n_unique() >= len(column.drop_nulls()):
        return True
    counts = listed.drop_nulls().value_counts().sort(listed.name)
    values, often = counts[listed.name].to_numpy(), counts["count"].to_numpy().astype(np.int64)
    dense = values[0] in (0, 1) and values[-1] - values[0] == len(values) - 1
    return bool(dense and (np.diff(often) <= 0).all())


def names_class(name: str, column: pl.Series, label: pl.Series) -> bool:
    """Say whether a column is another name for the class, a finer one, or one for several."""
    if NAMES_OF_LABELS.search(name):
        return True
    values, names = _codes(column)
    classes, labels = _codes(label)
    both = (values >= 0) & (classes >= 0)
    if not both.any() or len(labels) < 2 or not 2 <= len(names) <= both.sum() / 2:
        return False  # a value of its own for each picture names pictures, not classes
    table = np.zeros((len(names), len(labels)))
    np.add.at(table, (values[both], classes[both]), 1)
    of_value = table.max(1).sum() / table.sum() >= PURE
    of_class = table.max(0).sum() / table.sum() >= PURE
    if not of_value and not (of_class and len(names) < len(labels)):
        return False
    # Two values for two classes are a code (0 and 1, the names themselves) or a real shortcut.
    coded = column.dtype.is_numeric() or {n.casefold() for n in names} <= {
        x.casefold() for x in labels
    }
    return len(labels) > 2 or len(names) > 2 or coded
