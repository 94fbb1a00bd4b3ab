"""Checks and columns of the user's own: found, run, told like ours; and what is refused."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import audit
from audit.checking import own
from audit.checking.config import load_config
from audit.errors import UsageError
from audit.machine.executors import Processes, Serial
from audit.report import collect_report
from audit.scanning import scanning
from audit.sources import open_source
from tests.conftest import make_tree

pytestmark = pytest.mark.slow
MINE = '''"""Mine."""

from dataclasses import dataclass

from audit import Action, Check, Finding, Severity, column


@column("mean of the red channel, 0..1")
def redness(picture):
    return picture[..., 0].mean() / 255


class TooRed(Check):
    """Pictures that are too red."""

    code, name, severity = "OWN001", "too-red", Severity.WARNING
    features = ("redness",)

    @dataclass(frozen=True)
    class Params:
        """Thresholds.

        most: flagged above this redness
        """

        most: float = 0.99

    def find(self, store, params):
        sql = "SELECT id, subject, redness FROM images WHERE redness > ? ORDER BY id"
        for row in store.rows(sql, [params.most]):
            yield Finding(
                self.code, self.severity, (row["id"],), f"Redness {row['redness']:.2f}.",
                {"redness": row["redness"]}, Action.REVIEW, row["subject"],
            )
'''


COLUMN = MINE[: MINE.index("class TooRed")]
WARMTH = COLUMN.replace("redness", "warmth")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("own") / "pets")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with a file of checks, and settings that name it."""
    (tmp_path / "my_checks.py").write_text(MINE)
    (tmp_path / "audit.toml").write_text(
        '[plugins]\nfiles = ["my_checks.py"]\n[checks.OWN001]\nmost = 0.1\n'
    )
    return tmp_path


def scan_once(tree: Path, folder: Path, **options: Any) -> scanning.ScanResult:
    given = {"checks": ["OWN", "FILE001"], "executor": Serial(), **options}
    settings = load_config(folder / "audit.toml")
    return scanning.scan(open_source([str(tree)]), folder / "run", config=settings, **given)


def scan(tree: Path, folder: Path, **options: Any) -> audit.Run:
    scan_once(tree, folder, **options)
    return audit.open(folder / "run")


def test_a_check_and_a_column_of_ones_own_are_like_all_others(mine: Path, tree: Path) -> None:
    run = scan(tree, mine, executor=None, jobs=1)  # measured in a process of its own
    found = run.found("too-red")
    assert found.height == 24
    assert found["redness"].is_between(0.1, 1.0).all()
    assert "redness" in run.images.columns
    (summary,) = (c for c in collect_report(run.path).checks if c.code == "OWN001")
    assert "Pictures that are too red." in summary.page
    assert "most = 0.99" in summary.page
    run.decide(found["fingerprint"][0], "false-positive")
    assert set(run.found("OWN001")["status"]) == {"open", "waived"}
    (mine / "audit.toml").write_text('[plugins]\nfiles = ["my_checks.py"]\n')  # its own threshold
    scanning.recheck(run.path, checks=["OWN"], config=load_config(mine / "audit.toml"))
    assert run.found("OWN001").height == 0


def test_what_is_measured_follows_its_file(mine: Path, tree: Path) -> None:
    scan(tree, mine)
    assert scan_once(tree, mine).unchanged
    (mine / "my_checks.py").write_text(MINE.replace("/ 255", "/ 2550"))
    assert scan(tree, mine).images["redness"].max() < 0.1


def test_a_file_with_an_error_is_a_sentence_and_the_others_run(mine: Path, tree: Path) -> None:
    (mine / "broken.py").write_text("import os\n\nnonsense here\n")
    (mine / "audit.toml").write_text('[plugins]\nfiles = ["broken.py", "my_checks.py"]\n')
    report = collect_report(scan(tree, mine).path)
    (failed,) = report.failed
    assert failed.place == "broken.py:3"
    assert "The check file broken.py failed and found nothing: SyntaxError" in failed.sentence()
    assert {check.code for check in report.checks} == {"OWN001", "FILE001"}


def test_an_error_in_a_file_loses_nothing_that_it_measured(mine: Path, tree: Path) -> None:
    (mine / "more.py").write_text(WARMTH)
    files = '[plugins]\nfiles = ["more.py", "my_checks.py"]\n[checks.OWN001]\nmost = 0.1\n'
    (mine / "audit.toml").write_text(files)
    before = scan(tree, mine).images["redness"]
    (mine / "my_checks.py").write_text(f"{MINE}nonsense here\n")
    result = scan_once(tree, mine, checks=["FILE001"])
    assert (result.measured, result.unchanged) == (0, True)
    assert audit.open(mine / "run").images["redness"].equals(before)
    (failed,) = collect_report(mine / "run").failed
    assert failed.place == f"my_checks.py:{len(MINE.splitlines()) + 1}"
    (mine / "my_checks.py").write_text(MINE)
    assert scan(tree, mine).found("OWN001").height == 24


@pytest.mark.parametrize(
    ("step", "words"),
    [("picture.no_such_thing", "(in 24 files)"),
     ("raise SystemExit(0)", "SystemExit: 0 (in 24 files)")],
    ids=["raises", "ends the program"],
)  # fmt: skip
def test_a_column_that_fails_has_no_value_and_says_where(
    mine: Path, tree: Path, step: str, words: str
) -> None:
    text = MINE.replace("    return picture[", f"    {step}\n    return picture[")
    (mine / "my_checks.py").write_text(text)
    run = scan(tree, mine)
    assert run.images["redness"].null_count() == 24
    (failed,) = collect_report(run.path).failed
    assert failed.place == "my_checks.py:10"
    assert words in failed.sentence()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("OWN001", "IMG999", "codes in IMG are reserved"),
        ("OWN001", "mine", "three to five capital letters and three digits"),
        ("too-red", "near-duplicate", "name near-duplicate is already used"),
        ("def find", "def seek", "it needs find"),
        ("def redness", "def brightness", "invalid column name brightness"),
    ],
)
def test_what_breaks_the_contract_is_refused(mine: Path, old: str, new: str, said: str) -> None:
    (mine / "my_checks.py").write_text(MINE.replace(old, new))
    with pytest.raises(UsageError, match=said):
        own.load_own([mine / "my_checks.py"])


def test_no_file_of_the_dataset_is_run(mine: Path, tree: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(tree, tmp_path / "set"))
    (dataset / "evil.py").write_text("raise SystemExit('it ran')")
    (mine / "link.py").symlink_to(dataset / "evil.py")
    for name in ("set/evil.py", "link.py"):
        (mine / "audit.toml").write_text(f'[plugins]\nfiles = ["{name}"]\n')
        with pytest.raises(UsageError, match="is inside the dataset"):
            scan(dataset, mine)
    with pytest.raises(UsageError, match="not a Python file"):
        own.load_own([mine / "absent.py"])


def test_an_unknown_code_is_refused_where_the_files_ran(mine: Path, tree: Path) -> None:
    (mine / "audit.toml").write_text('[plugins]\nfiles = ["my_checks.py"]\n[checks.OWN002]\n')
    with pytest.raises(UsageError, match="OWN002"):
        scan(tree, mine)


@pytest.fixture
def registered() -> Iterator[None]:
    yield
    own._registered.clear()


@pytest.mark.usefixtures("registered")
def test_a_check_of_a_notebook_is_registered(tree: Path, tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(MINE, "<cell 1>", "exec"), space)  # as a notebook defines it
    with pytest.raises(UsageError, match="move it to a file"):
        audit.register(space["redness"])
    space["TooRed"].features = ()
    space["TooRed"].find = lambda self, store, params: iter(())
    audit.register(space["TooRed"])
    (tmp_path / "audit.toml").write_text("")
    report = collect_report(scan(tree, tmp_path).path)
    assert {check.code for check in report.checks} == {"OWN001", "FILE001"}


EXITS = ("sys.exit(0)", "raise GeneratorExit", 'raise type("Odd", (BaseException,), {})("odd")')
PARTS = ("import", "construction", "find", "completeness")


@pytest.mark.parametrize(
    ("part", "raised"), [*((part, EXITS[0]) for part in PARTS), *(("find", e) for e in EXITS[1:])]
)
def test_a_check_that_ends_the_program_is_a_failed_check(
    mine: Path, tree: Path, part: str, raised: str
) -> None:
    methods = {
        "construction": f"    def __init__(self):\n        {raised}\n",
        "find": f"    def find(self, store, params):\n        {raised}\n",
        "completeness": f"    def completeness(self, store, params):\n        {raised}\n",
        "import": f"{raised}\n",
    }
    (mine / "my_checks.py").write_text(f"import sys\n{MINE}{methods[part]}")
    checks = ["FILE001"] if part in PARTS[:2] else ["OWN"]
    report = collect_report(scan(tree, mine, checks=checks).path)
    (failed,) = report.failed
    assert failed.place.startswith("my_checks.py:")
    assert failed.code == ("" if part == "import" else "OWN001")


CRASHES = (
    "os.abort()",
    "os._exit(0)",
    "ctypes.string_at(0)",
    "time.sleep(1000)",
    "bytearray(1 << 44)",
)


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("when", ["True", "picture.mean() > 200"])
def test_a_column_that_crashes_its_process_is_dropped(
    mine: Path, tree: Path, crash: str, when: str
) -> None:
    dataset = Path(shutil.copytree(tree, mine / "set"))
    Image.new("RGB", (64, 64), (255, 250, 250)).save(dataset / "train" / "cat" / "white.png")
    steps = f"    if {when}:\n        {crash}\n    return picture["
    imports = "import ctypes, os, sys, time\n"
    (mine / "my_checks.py").write_text(imports + MINE.replace("    return picture[", steps))
    (mine / "more.py").write_text(WARMTH)
    (mine / "audit.toml").write_text('[plugins]\nfiles = ["more.py", "my_checks.py"]\n')
    for measured in (25, 0):  # the second scan measures nothing again, and names the column
        result = scan_once(dataset, mine, executor=Processes(1, timeout_s=3.0))
        assert result.measured == measured
        images = audit.open(mine / "run").images
        assert set(images["status"]) == {"ok"}
        assert images["warmth"].null_count() == 0
        (failed,) = collect_report(mine / "run").failed
        assert (failed.name, failed.place) == ("column redness", "my_checks.py:9")
        assert "not measured for the rest of the scan" in failed.sentence()


def test_a_column_whose_file_fails_in_a_worker_has_no_value(mine: Path, tree: Path) -> None:
    text = f"import os, sys\nif os.getpid() != {os.getpid()}:\n    sys.exit(0)\n{MINE}"
    (mine / "my_checks.py").write_text(text)
    run = scan(tree, mine, executor=Processes(1))
    assert set(run.images["status"]) == {"ok"}
    (failed,) = collect_report(run.path).failed
    assert "column redness failed" in failed.sentence()
    assert "SystemExit: 0 (in 24 files)" in failed.sentence()


def test_every_column_that_raises_is_named(mine: Path, tree: Path) -> None:
    column = COLUMN.replace("    return ", "    return 1 / 0 * ")
    (mine / "my_checks.py").write_text(column + column.replace("redness", "warmth"))
    (mine / "audit.toml").write_text('[plugins]\nfiles = ["my_checks.py"]\n')
    run = scan(tree, mine, checks=["FILE001"])
    assert {failed.name for failed in collect_report(run.path).failed} == {
        "column redness",
        "column warmth",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("evidence", text) for text in ("{'a': {1}}", "{'a': b'x'}", "{'a': Path('x')}")),
        *(("evidence", text) for text in ("{1j: 1}", "{'a': '\\udc80'}", "recursive", "[1]")),
        *(("message", text) for text in ("3", "None", "'\\udc80'")),
        *(("subject", text) for text in ("None", "5")),
        *(("severity", text) for text in ("'error'", "None")),
        *(("sample_ids", text) for text in ("(1,)", "(None,)", "row['id']", "None")),
        ("action", "'keep'"),
    ],
)
def test_a_finding_that_cannot_be_stored_fails_its_check_alone(
    mine: Path, tree: Path, field: str, value: str
) -> None:
    wrong = (
        f"            row['subject'] += 'x'\n            yield replace(found, {field}={value})\n"
    )
    text = MINE.replace("            yield Finding(", "            found = Finding(") + wrong
    head = "from dataclasses import replace\nfrom pathlib import Path\n"
    (mine / "my_checks.py").write_text(
        f"{head}recursive = {{}}\nrecursive['a'] = recursive\n{text}"
    )
    report = collect_report(scan(tree, mine).path)
    (failed,) = report.failed
    assert failed.code == "OWN001"
    assert failed.place.startswith("my_checks.py:")
    assert {check.code for check in report.checks} == {"FILE001"}


def test_numbers_of_numpy_are_evidence(mine: Path, tree: Path) -> None:
    text = MINE.replace(
        '{"redness": row["redness"]}', '{"n": np.int64(3), "x": np.float32(0.5), "nan": np.nan}'
    )
    (mine / "my_checks.py").write_text(f"import numpy as np\n{text}")
    found = scan(tree, mine).found("OWN001")
    assert (set(found["n"]), set(found["x"]), set(found["nan"])) == ({3}, {0.5}, {None})
