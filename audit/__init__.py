"""audit: find what is wrong with an image dataset before anyone trains on it.

    import audit
    run = audit.scan("images")
    run.findings

`scan` and `open` (`audit.interface`) return a `Run` (`audit.results`) of polars frames. They are
loaded when they are first used, so that `import audit` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.interface import open_audit as open  # noqa: A004 - `audit.open`, as people write it
    from audit.interface import scan_dataset as scan
    from audit.results import Run

__all__ = ["Run", "open", "scan"]

_PUBLIC = {"Run": "Run", "open": "open_audit", "scan": "scan_dataset"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'audit' has no attribute {name!r}")
    from audit import interface

    return getattr(interface, _PUBLIC[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
