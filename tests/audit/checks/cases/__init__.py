"""The cases of every check: those of `audit/checks/<file>.py` are here in a file of the same name.

Each file has a mapping `CASES` from the code of a check to its cases, or yields the cases of a
check in a function that is named after its code.
"""

import re
from importlib import import_module
from pkgutil import iter_modules

from tests.audit.checks.case_tables import Cases

FILES = tuple(sorted(found.name for found in iter_modules(__path__)))
MODULES = [vars(import_module(f"{__name__}.{name}")) for name in FILES]
CASES: Cases = {
    code.upper(): tuple(cases()) if callable(cases) else cases
    for module in MODULES
    for code, cases in (module | module.get("CASES", {})).items()
    if re.fullmatch(r"[a-z]+\d{3}|[A-Z]+\d{3}", code)
}
