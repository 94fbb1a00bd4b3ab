"""Measured rows as Parquet parts on a shared place: written by nodes, taken in by the head.

A node writes its signatures and then its rows, each file named by its content, and answers with the
name alone. So memory holds one part, and the next scan takes in the parts that outlive a head; a
damaged part is as good as absent. Parts are removed when the scan has published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import blake3
import pyarrow as pa
import pyarrow.parquet as pq

from audit.cluster.shared_place import SharedPlace
from audit.errors import MachineError
from audit.picture.measure import FileJob, Measured, Measurer, feature_schema, signature_table
from audit.picture.own_columns import OwnColumn

FEATURES, SIGNATURES = ".features.parquet", ".signatures.parquet"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the shared place did not take a part, one sentence: no file is at fault."""

    text: str


@dataclass(frozen=True, slots=True)
class PartWriter:
    """The work of a node: measures a chunk, writes it as a part, answers with its name."""

    measurer: Measurer
    place: SharedPlace

    def __call__(self, jobs: Sequence[FileJob]) -> str | Refusal:
        """Measure and write; a place that takes nothing is said, not raised: trying again on
        another node would measure the whole dataset for nothing.
        """
        measured = self.measurer(jobs)
        try:
            return write_part(self.place, measured)
        except (MachineError, OSError) as error:
            return Refusal(str(error))


def write_part(place: SharedPlace, measured: Measured) -> str:
    """Write signatures, then rows, and return their name: where the rows are, both are."""
    features, signatures = _as_parquet(measured.features), _as_parquet(measured.signatures)
    # one name for both, or rows could be read with the signatures of other pictures
    name = str(blake3.blake3(features + signatures).hexdigest()[:32])
    place.write(name + SIGNATURES, signatures)
    place.write(name + FEATURES, features)
    return name


def read_part(
    place: SharedPlace, name: str, hashes: Sequence[str] = (), own: Sequence[OwnColumn] = ()
) -> Measured | None:
    """Return a part, None where it is absent, damaged or of another version."""
    try:
        features, signatures = place.read(name + FEATURES), place.read(name + SIGNATURES)
        if blake3.blake3(features + signatures).hexdigest()[:32] != name:
            return None
        measured = Measured(_table(features), _table(signatures))
    except (OSError, pa.ArrowInvalid):
        return None
    as_now = measured.signatures.schema.equals(signature_table([], []).schema, check_metadata=True)
    return (
        measured
        if as_now and measured.features.schema.equals(feature_schema(hashes, own))
        else None
    )


def waiting_parts(place: SharedPlace) -> list[str]:
    """Return the names of the parts that are there."""
    return [n.removesuffix(FEATURES) for n in place.names() if n.endswith(FEATURES)]


def _as_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def _table(content: bytes) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        return file.read()
