"""The cases of every check: those of `audit/checks/<file>.py` are here in a file of the same name.

Each file has a mapping `CASES` from the code of a check to its cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules

from audit.testing import Case

FILES = tuple(sorted(found.name for found in iter_modules(__path__)))
CASES: Mapping[str, Sequence[Case]] = {
    code: cases
    for name in FILES
    for code, cases in import_module(f"{__name__}.{name}").CASES.items()
}
