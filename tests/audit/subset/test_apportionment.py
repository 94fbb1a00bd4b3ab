"""Allocation: the U.S. House as a published case, the one-by-one rule, hypothesis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.subset.apportionment import allocate, order_units, scale_for_classes

# U.S. Census Bureau, 2020 apportionment: population of each state and seats of 435. The method of
# equal proportions is Wright's (2012) exact allocation with one unit first in each stratum.
HOUSE_2020 = {
    "AL": (5030053, 7), "AK": (736081, 1), "AZ": (7158923, 9), "AR": (3013756, 4),
    "CA": (39576757, 52), "CO": (5782171, 8), "CT": (3608298, 5), "DE": (990837, 1),
    "FL": (21570527, 28), "GA": (10725274, 14), "HI": (1460137, 2), "ID": (1841377, 2),
    "IL": (12822739, 17), "IN": (6790280, 9), "IA": (3192406, 4), "KS": (2940865, 4),
    "KY": (4509342, 6), "LA": (4661468, 6), "ME": (1363582, 2), "MD": (6185278, 8),
    "MA": (7033469, 9), "MI": (10084442, 13), "MN": (5709752, 8), "MS": (2963914, 4),
    "MO": (6160281, 8), "MT": (1085407, 2), "NE": (1963333, 3), "NV": (3108462, 4),
    "NH": (1379089, 2), "NJ": (9294493, 12), "NM": (2120220, 3), "NY": (20215751, 26),
    "NC": (10453948, 14), "ND": (779702, 1), "OH": (11808848, 15), "OK": (3963516, 5),
    "OR": (4241500, 6), "PA": (13011844, 17), "RI": (1098163, 2), "SC": (5124712, 7),
    "SD": (887770, 1), "TN": (6916897, 9), "TX": (29183290, 38), "UT": (3275252, 4),
    "VT": (643503, 1), "VA": (8654542, 11), "WA": (7715946, 10), "WV": (1795045, 2),
    "WI": (5897473, 8), "WY": (577719, 1),
}  # fmt: skip


def test_the_house_of_representatives():
    people = np.array([v[0] for v in HOUSE_2020.values()])
    assert people.sum() == 331_108_434
    seats = allocate(people, np.ones(50), 435, first=1)
    assert seats.tolist() == [v[1] for v in HOUSE_2020.values()]
    order, _ = order_units(people, np.ones(50), 436, first=1)
    names = list(HOUSE_2020)
    assert (names[order[434]], names[order[435]]) == ("MN", "NY")  # New York missed by 89 people


def one_by_one(sizes, scale, n):
    held = np.minimum(sizes, 2)
    while held.sum() < n:
        priority = np.where(held < sizes, sizes * scale / np.sqrt(held * (held + 1.0)), -1)
        held[priority.argmax()] += 1
    return held


SETS = st.lists(
    st.tuples(st.integers(2, 300), st.sampled_from([0.1, 0.3, 0.5, 1.0])), min_size=1, max_size=12
)


@pytest.mark.slow
@given(SETS, st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_equal_to_the_one_by_one_rule(strata, share):
    sizes, scale = (np.array(column) for column in zip(*strata, strict=True))
    least = int(np.minimum(sizes, 2).sum())
    n = least + round(share * (int(sizes.sum()) - least))
    expected = one_by_one(sizes, scale, n)
    assert allocate(sizes, scale, n).tolist() == expected.tolist()
    order, number = order_units(sizes, scale, n)
    assert np.bincount(order, minlength=sizes.size).tolist() == expected.tolist()
    for h in range(sizes.size):
        assert number[order == h].tolist() == list(range(expected[h]))


@pytest.mark.slow
@given(SETS)
@settings(max_examples=60, deadline=None)
def test_the_sequence_does_not_depend_on_where_it_stops(strata):
    sizes, scale = (np.array(column) for column in zip(*strata, strict=True))
    total = int(sizes.sum())
    whole = order_units(sizes, scale, total)
    for n in {2, total // 3, total // 2, total - 1} - {0}:
        part = order_units(sizes, scale, n)
        assert part[0].tolist() == whole[0][:n].tolist()
        assert part[1].tolist() == whole[1][:n].tolist()


def test_exact_where_rounding_is_not():
    """No allocation of 30 units has less variance: every neighbour is worse."""
    sizes, scale, n = np.array([47, 61, 41]), np.array([10.0, 8.0, 5.0]), 30

    def variance(held):
        return float(((sizes * scale) ** 2 / held).sum())

    best = allocate(sizes, scale, n)
    for i in range(3):
        for j in range(3):
            if i != j and best[i] > 2:
                other = best + np.eye(3, dtype=int)[j] - np.eye(3, dtype=int)[i]
                assert variance(other) >= variance(best)


def test_steered_to_classes():
    sizes, classes = np.array([900, 60, 40, 1000]), np.array([0, 1, 1, 2])
    scale = scale_for_classes(sizes, classes, np.array([50.0, 50.0, 0.0]))
    held = allocate(sizes, scale, 102)
    assert held[3] == 2
    assert abs(held[0] - 50) <= 1
    assert abs(held[1] + held[2] - 50) <= 1
    assert abs(held[1] - 30) <= 1
