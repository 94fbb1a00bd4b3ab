"""Errors that are the caller's to cure; each message says how.

AuditError
├── UsageError          a bad path, option, column, code or file the user gave (exit code 2)
├── MissingExtraError   an optional dependency is not installed; says which extra to install
├── RunError            a run directory that is absent, damaged, or from another version
│   └── LockedError     another process is writing this run
└── CheckContractError  a check file breaks the contract; says file and rule

A problem in the *data* is never one of these: it is a Finding.
"""

from __future__ import annotations


class AuditError(Exception):
    """Base of every error that a user can cure; `str(error)` is one sentence with the cure."""


class UsageError(AuditError):
    """The call itself is wrong: a path, option, column or code that does not exist."""


class MissingExtraError(AuditError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        """Say which extra brings `package`."""
        super().__init__(
            f"This needs the package {package!r}: install it with "
            f"`pip install 'dataset-preflight[{extra}]'`."
        )


class RunError(AuditError):
    """The run directory cannot be used as it is."""


class LockedError(RunError):
    """Another process is writing to this run."""


class CheckContractError(AuditError):
    """A file in checks/ does not follow the contract of `audit.checking.check`."""
