"""The contract of a check: what is found, what is refused and where, and what a page must have."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from dataset_preflight.foundation.check_contract import (
    Contract,
    checks_in,
    modules_in,
    named_checks,
    page_of,
)
from tests.dataset_preflight.pages import page_faults

SECTIONS = ("What it does", "Limits")
PAGE = '''
class {name}(Check):
    """{first}

    ## What it does
    It looks at one thing, and at nothing else.

    ## Limits
    {limits}
    """

    code = "{code}"
    name = "{title}"
'''


class Check:
    code: ClassVar[str]
    name: ClassVar[str]


class BrokenError(Exception):
    pass


def rules(check: Check) -> Iterator[tuple[bool, str]]:
    yield check.name == "refused", "the program's own rule"


Found = Callable[..., dict[str, Check]]
CONTRACT = Contract(("AB", "CD"), SECTIONS, BrokenError, rules)


def written(
    name: str = "Odd",
    code: str = "AB001",
    title: str = "odd-thing",
    first: str = "Things that are odd.",
    limits: str = "What is even is never looked at.",
) -> str:
    return PAGE.format(name=name, code=code, title=title, first=first, limits=limits)


@pytest.fixture
def found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Found]:
    """Return the checks of a folder with these files, as a program finds its own."""
    package = f"made_checks_{abs(hash(request.node.name))}"

    def find(*files: str) -> dict[str, Check]:
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        for number, text in enumerate(files):
            head = f"from {__name__} import Check\n"
            (folder / f"file_{number}.py").write_text(head + text)
        monkeypatch.syspath_prepend(tmp_path)
        return dict(checks_in(modules_in(package), Check, CONTRACT))

    yield find
    for name in [name for name in sys.modules if name.startswith(package)]:
        del sys.modules[name]


def test_checks_are_found_by_code_in_its_order(found: Found) -> None:
    other = written("Even", "AB002", "even-thing")
    checks = found(other, written() + written("Third", "CD001", "third"))
    assert list(checks) == ["AB001", "AB002", "CD001"]
    for word, codes in (("ab", ["AB001", "AB002"]), ("third", ["CD001"]), ("", []), ("x", [])):
        assert [c.code for c in named_checks(checks.values(), word)] == codes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (written(code="XY001"), "code must look like AB001"),
        (written(code="AB01"), "code must look like AB001"),
        (written(title="Odd Thing"), "name must be lower-case words"),
        (written().replace("## Limits", "## Bounds"), r"lacks the sections \['Limits'\]"),
        (written(title="refused"), "the program's own rule"),
        (written() + written("Twice"), "the code AB001 is that of Odd too"),
    ],
)
def test_a_check_that_breaks_the_contract_is_named_with_its_place(
    found: Found, text: str, said: str
) -> None:
    line = text.splitlines().index(
        "class Twice(Check):" if "Twice" in text else text.split("\n")[1]
    )
    with pytest.raises(BrokenError, match=rf"file_0\.py:{line + 2}: \w+: .*{said}.*\.$"):
        found(text)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (written(), []),
        (written(first="odd things"), ["it does not begin with a sentence"]),
        (written(limits="None."), ["Limits says too little"]),
        (written(limits="What is even is never looked at"), ["Limits ends without a full stop"]),
        (written(limits="Even. " * 20), ["Limits has lines of more than 100 characters"]),
        (
            written().replace("## Limits", "## Notes\n    " + "Noted. " * 9 + "\n\n    ## Limits"),
            ["the sections are What it does, Notes, Limits"],
        ),
    ],
)
def test_faults_of_a_page(found: Found, text: str, faults: list[str]) -> None:
    (check,) = found(text).values()
    assert list(page_faults(check, SECTIONS)) == faults


def test_page_and_table(found: Found) -> None:
    checks = found(written(), written("Even", "AB002", "even-thing")).values()
    check = next(iter(checks))
    assert page_of(check).startswith("# AB001 odd-thing\n\nThings that are odd.\n\n## What it does")
    assert page_of(check, "error").startswith("# AB001 odd-thing (error)\n")
