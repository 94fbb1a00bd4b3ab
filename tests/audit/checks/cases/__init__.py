"""The cases of every check: those of `audit/checks/<file>.py` are here in a file of the same name.

Each file has a mapping `CASES` from the code of a check to its cases.
"""

from importlib import import_module
from pkgutil import iter_modules

from tests.audit.checks.case_tables import Cases

FILES = tuple(sorted(found.name for found in iter_modules(__path__)))
CASES: Cases = {
    code: cases
    for name in FILES
    for code, cases in import_module(f"{__name__}.{name}").CASES.items()
}
