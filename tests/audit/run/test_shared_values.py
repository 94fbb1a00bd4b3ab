"""What several checks need of a store is made once, and again after something was written."""

from __future__ import annotations

import pytest

from audit.checking.check import all_checks, make_params
from audit.picture.features import FEATURE_ROW
from audit.run.store import Store
from audit.testing import case_store
from tests.audit.asked import asked_of
from tests.audit.checks.cases import CASES


def count_images(store: Store, least: int) -> int:
    return int(store.scalar("SELECT count(*) + ? FROM images", [least]))


def fail_halfway(store: Store) -> None:
    store.append("images", [{"id": "b"}])
    assert store.share(count_images, 0) == 2
    raise ZeroDivisionError


def test_made_once_until_something_is_written() -> None:
    store = Store.memory()
    store.execute("CREATE TABLE images (id VARCHAR)")
    with asked_of(store) as asked:
        assert [store.share(count_images, 0), store.share(count_images, 0)] == [0, 0]
        assert (store.share(count_images, 5), len(asked)) == (5, 2)
    store.append("images", [{"id": "a"}])
    assert store.share(count_images, 0) == 1
    with store.rolled_back():
        store.append("images", [{"id": "b"}])
        assert store.share(count_images, 0) == 2
    assert store.share(count_images, 0) == 1
    with pytest.raises(ZeroDivisionError), store.transaction():
        fail_halfway(store)
    assert store.share(count_images, 0) == 1


def test_the_table_of_properties_is_read_once_for_all_checks() -> None:
    case = next(case for case in CASES["DIST004"] if case.expect)
    with case_store(case) as store, asked_of(store) as asked:
        for code in ("DIST004", "DIST007"):
            check = all_checks()[code]
            params = make_params(check, {})
            list(check.find(store, params))
            check.completeness(store, params)
    assert sum("regexp_replace" in sql for sql in asked) == 1


def test_few_rows_have_the_types_that_many_have() -> None:
    """Queries of a small dataset go by way of Python values, those of a large one by Arrow."""
    sql = """
        SELECT n::TINYINT AS a, n::UBIGINT AS b, n::DOUBLE AS c, n::FLOAT AS d, n = 1 AS e,
            'é' || n AS f, [n, NULL] AS g, NULL AS h, ['x'] AS i, 'x'::BLOB AS j,
            DATE '2026-01-01' AS k, TIMESTAMP '2026-01-01 10:00:00' AS l, sum(n) AS m, 1.5 AS o,
            {'a': n} AS p, n AS q, n AS q
        FROM (SELECT unnest([1, 2, $1]) AS n) WHERE n < $2 GROUP BY n ORDER BY n
    """
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        for highest in (9, 0):  # all rows, and none
            for columns in ("*", "* EXCLUDE (l, m, o, p)"):
                asked = f"SELECT {columns} FROM ({sql})", [None, highest]
                many = store.query(*asked)
                store.plan_briefly()
                few = store.query(*asked)
                assert few.schema == many.schema
                assert few.equals(many)
                store.execute("INSERT INTO samples (id) SELECT range FROM range(3000)")
                store.plan_briefly()
                store.execute("DELETE FROM samples")
