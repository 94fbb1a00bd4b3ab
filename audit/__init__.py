"""audit: find what is wrong with an image dataset before anyone trains on it.

    import audit
    run = audit.scan("images")
    run.findings

`scan` and `open` (`audit.interface`) return a `Run` of polars frames; `connect` reads those of a
service (`audit.service.client`). They are loaded when they are first used, so that `import audit`
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.checking.check import Check
    from audit.checking.own import register
    from audit.interface import Run
    from audit.interface import open_audit as open  # noqa: A004 - `audit.open`, as people write it
    from audit.interface import scan_dataset as scan
    from audit.picture.own_columns import column
    from audit.records import Action, Finding, Severity
    from audit.service.client import connect_service as connect

__all__ = [
    "Action", "Check", "Finding", "Run", "Severity", "column", "connect", "open", "register",
    "scan",
]  # fmt: skip

_PUBLIC = {
    "Action": "audit.records.Action",
    "Check": "audit.checking.check.Check",
    "Finding": "audit.records.Finding",
    "Run": "audit.interface.Run",
    "Severity": "audit.records.Severity",
    "column": "audit.picture.own_columns.column",
    "connect": "audit.service.client.connect_service",
    "open": "audit.interface.open_audit",
    "register": "audit.checking.own.register",
    "scan": "audit.interface.scan_dataset",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'audit' has no attribute {name!r}")
    import importlib

    module, _, attribute = _PUBLIC[name].rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
