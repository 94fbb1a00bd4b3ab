"""What belongs together is numbered alike: near-duplicates, groups of a manifest, and chains."""

from __future__ import annotations

import polars as pl

from audit.embeddings.label_tables import number_groups


def rows(*pictures: tuple[str, str | None, list[str]]) -> pl.DataFrame:
    """Pictures by pixel hash, the representative of their near-duplicates, their group keys."""
    keys = pl.List(pl.String)
    schema = {"pixel_hash": pl.String, "representative": pl.String, "group_keys": keys}
    return pl.DataFrame(pictures, schema=schema, orient="row")


def test_near_duplicates_and_group_keys_join_pictures() -> None:
    found = number_groups(
        rows(("a", "a", []), ("b", "a", ["film 1"]), ("c", None, ["film 1"]), ("d", None, []))
    )
    assert found[0] == found[1] == found[2] != found[3]


def test_a_chain_of_groups_is_one() -> None:
    chain = [(f"{n}", None, [f"film {n}", f"film {n + 1}"]) for n in range(40)]
    found = number_groups(rows(*reversed(chain), ("x", None, ["film 99"])))
    assert len(set(found[:-1].tolist())) == 1
    assert found[-1] not in found[:-1]


def test_without_group_keys_units_are_kept() -> None:
    found = number_groups(rows(("a", None, []), ("b", "b", []), ("c", "b", [])))
    assert found[1] == found[2] != found[0]
