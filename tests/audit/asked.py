"""What a store is asked, for tests of how often."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from audit.run.store import Store


@contextlib.contextmanager
def asked_of(store: Store) -> Iterator[list[str]]:
    """Every SQL text that goes to a store meanwhile."""
    seen: list[str] = []

    def noted(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asking(sql: str, params: Sequence[Any] = ()) -> Any:
            seen.append(sql)
            return ask(sql, params)

        return asking

    with pytest.MonkeyPatch.context() as patch:
        for name in ("execute", "query", "scalar"):
            patch.setattr(store, name, noted(getattr(store, name)))
        yield seen
