"""The command line end to end on real small loops; structure only, no times."""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import audit
from dataset_preflight.foundation.ending import ExitCode, strongest
from pipeline_profiler.checks.loader_subject import LoaderSubject
from pipeline_profiler.cli import main
from pipeline_profiler.cli.main import command_line
from pipeline_profiler.cli.user_code import portable_name
from pipeline_profiler.precision.data_source import DataSource
from pipeline_profiler.profiling.diagnose import verdict
from pipeline_profiler.profiling.measure import schedule as measuring
from pipeline_profiler.profiling.measure.arms import Bench, Options, Shadow
from pipeline_profiler.profiling.monitor import conclusion
from pipeline_profiler.profiling.record.session import Session
from pipeline_profiler.runs.table_file import read_rows
from tests.conftest import make_tree
from tests.pipeline_profiler.cli.loaders import FAST, SOURCE, write_source
from tests.pipeline_profiler.fakes import broken_rule, made_session, schedule

pytestmark = pytest.mark.slow


UNFIT = "def make_nothing():\n    return 3\n\ndef make_none():\n    return None\n"


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return write_source(tmp_path, SOURCE + UNFIT)


def run(*argv: Any) -> int:
    return main.command_line([str(a) for a in argv])


@pytest.mark.parametrize(
    ("codes", "worst"),
    [((0, 1), 1), ((1, 3), 3), ((3, 2), 2), ((2, 4, 1), 4), ((4, 130), 130), ((0, 0), 0)],
)
def test_the_most_severe_exit_code_wins(codes: tuple[int, ...], worst: int) -> None:
    assert strongest(*map(ExitCode, codes)) == worst


def test_run_saves_a_session_that_report_reads_and_compares(
    train: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = ("--step", f"{train}:make_step", *FAST[:-2])  # without an emulated one
    bound = ("--fail-on", "stall>100%")  # no interval lies above the whole
    assert run("run", f"{train}:make_loader", *step, *bound, "--json", "-o", "s.json") == 0
    out = capsys.readouterr()
    document = json.loads(out.out)
    assert document["schema"] == "profile/1"
    assert {"verdict", "stall", "causes", "arms", "environment"} <= set(document)
    assert re.search(r"^Needs .* s \(\d repeats x \d+ steps\): resident", out.err, re.MULTILINE)
    command = document["environment"]["command"]
    assert command == {
        "loader": f"{train.name}:make_loader", "step": f"{train.name}:make_step",
        "options": "--quick --seconds 2",
    }  # fmt: skip
    assert Session.load("s.json").results["verdict"] == document["verdict"]
    for name in ("r.html", "r.md", "r.txt", "r.json"):
        assert run("report", "s.json", "-o", name) == 0
        assert Path(name).stat().st_size > 100
    html = Path("r.html").read_text()
    assert "<svg" in html
    assert "<script" not in html
    assert "://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert json.loads(Path("r.json").read_text())["schema"] == "profile/1"
    capsys.readouterr()
    assert run("report", "s.json", "--against", "s.json", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["speedup"]["low"] <= 1 <= result["speedup"]["high"]
    assert "inconclusive" in result["sentence"]
    assert run("run", f"{train}:make_loader", "--step", f"{train}:make_nothing") == 2
    assert "must return a function step(batch)" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [[], ["--try", "workers=0"]])
def test_what_a_broken_loader_gave_is_kept_and_has_a_row(
    train: Path,
    mode: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", "runs.sqlite")
    train.write_text(SOURCE.replace("counted(MIDDLE, fail)", "counted(1, fail, 2)"))
    assert run("run", *mode, f"{train}:broken", *FAST, "-o", "s.json") == 2
    said = capsys.readouterr().err
    assert "Traceback (most recent" not in said
    if "--try" in mode:  # it refuses a loader without settings before it measures
        return
    assert "The loader raised OSError after 2 batches: disk \\x1b[31m3\\x1b[0m is gone" in said
    assert "partial session is saved in s.json" in said
    assert Session.load("s.json").partial
    (row,) = read_rows(Path("runs.sqlite"))
    assert (row.verdict, row.file) == ("partial", str(train.parent / "s.json"))


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("train.py:make", "train.py:make"),
        ("{cwd}/code/train.py:make", "code/train.py:make"),
        ("code/../train.py:make", "train.py:make"),
        ("/srv/{cwd}/../train.py:make", "train.py:make"),
        ("../train.py:make", "train.py:make"),
        ("", ""),
    ],
)
def test_a_session_names_code_without_a_path_of_the_machine(
    spec: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert portable_name(spec.format(cwd=tmp_path)) == name


def test_fail_on_is_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made_session(schedule(120, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    path = path.save(tmp_path / "stalled.json")
    assert run("report", path, "--fail-on", "stall>20%") == 1
    assert run("report", path, "--fail-on", "stall>99%") == 0
    assert run("report", path, "--fail-on", "stall > 0.2") == 1
    assert "GPU starvation" not in capsys.readouterr().out


def test_a_failed_rule_is_exit_code_3_and_trace_shows_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verdict, "COMPUTE_RULES", (broken_rule, *verdict.COMPUTE_RULES))
    made = made_session(schedule(120, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    path = made.save(tmp_path / "unjudged.json")
    assert run("report", path) == 3
    out = capsys.readouterr()
    assert "The rule broken_rule failed (ZeroDivisionError: no batch at all" in out.out
    assert "Traceback" not in out.err
    assert run("report", path, "--fail-on", "stall>20%", "--trace") == 3  # 3 before 1
    assert "Traceback" in capsys.readouterr().err
    made.results = verdict.diagnose_session(made).as_results()
    path = made.save(tmp_path / "judged.json")
    assert run("report", path) == 3
    assert run("report", path, "--trace") == 3
    assert 'raise ZeroDivisionError("no batch at all")' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        ("nothing.py:make", "is not FILE.py:FUNCTION"),
        ("{}:absent", "has no function absent"),
        ("{}:make_nothing", "No adapter can iterate"),
        ("{}:make_none", "No adapter can iterate"),
        ("{}:broken_maker", "no such bucket"),
        ("{}", "is not FILE.py:FUNCTION"),
    ],
)
def test_wrong_loaders_are_one_sentence(
    train: Path, capsys: pytest.CaptureFixture[str], loader: str, words: str
) -> None:
    assert run("run", loader.format(train), "--emulate-step-ms", "4") == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err.replace("Traceback of your code", "")
    assert not Path("profile.json").exists()


def test_a_missing_extra_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wants_torch_x.py"
    path.write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    assert run("run", f"{path}:make") == 2
    assert "pip install 'dataset-preflight[torch]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "code",
    [
        "from pipeline_profiler.cli.main import command_line\n"
        "try: command_line(['--help'])\nexcept SystemExit as end: assert end.code == 0",
        "from pipeline_profiler import Recorder\nlist(Recorder().watch([1, 2]))",
    ],
    ids=["help", "recorder"],
)
def test_help_and_the_recorder_load_no_framework_and_no_numpy(code: str) -> None:
    heavy = "assert not {'torch', 'tensorflow', 'numpy', 'streamlit', 'scipy'} & set(sys.modules)"
    script = f"import sys\n{code}\n{heavy}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("COMMAND" in done.stdout) == ("help" in code)


def test_a_stored_session_is_judged_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_session(schedule(120, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    fresh = verdict.diagnose_session(made).as_results()
    stale = [{**fresh["causes"][0], "code": "PIPE011", "name": "stale-cause"}]
    stored = fresh | {"sentence": "input-bound high: of an older version", "causes": stale}
    for document, judged in ((stored, True), ({**stored, "verdict": "sweep"}, False)):
        made.results = document
        path = made.save(tmp_path / f"{judged}.json")
        assert run("report", path) == 0
        said = capsys.readouterr().out
        assert (str(fresh["sentence"]) in said) == judged
        assert ("stale-cause" in said) != judged
        recorded = "input-bound high: of an older version"
        assert bool(re.search(rf"verdict when it was recorded +{recorded}\n", said)) == judged
        assert run("report", path, "-o", tmp_path / f"{judged}.html") == 0
        conclusion.judge_session(again := Session.parse(path.read_bytes(), "s"))
        assert (again.results["causes"] == json.loads(json.dumps(fresh["causes"]))) == judged
        capsys.readouterr()
        assert recorded in (tmp_path / f"{judged}.html").read_text() or not judged


def test_stored_results_stay_where_the_windows_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_session(schedule(120, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    made.results = verdict.diagnose_session(made).as_results()
    path = made.save(tmp_path / "s.json")
    monkeypatch.setattr(conclusion, "diagnose_session", lambda session: [][0])
    assert run("report", path) == 0
    said = capsys.readouterr().out
    assert made.results["sentence"] in said
    assert "when it was recorded" not in said


def ends(*_: Any) -> Any:
    raise SystemExit(0)


def test_code_that_ends_the_program_leaves_no_result(
    train: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "report_command", ends)
    assert run("report", "a.json") == ExitCode.NO_RESULT
    assert "no result, because this program failed: SystemExit: 0" in capsys.readouterr().err


def test_a_factory_that_ends_the_program_is_a_failed_factory() -> None:
    source = DataSource.open(ends, "m", 2, time.monotonic_ns)
    assert "the loader failed with SystemExit: 0" in source.problem
    assert LoaderSubject(list, make_model=ends).declared is None
    shadow = Shadow(SimpleNamespace(iterable=map(ends, [0])))  # type: ignore[arg-type]
    shadow.take()
    shadow._thread.join()
    assert isinstance(shadow.error, SystemExit)


def test_a_report_has_the_sizes_that_a_run_of_audit_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit.scan(make_tree(tmp_path / "data"), tmp_path / "run", checks="IMG001")
    made = made_session(schedule(120, 2, 2, 20.0, lambda j: 60.0), 20.0, workers=2, prefetch=2)
    names = ["test/cat/0.jpg", str(tmp_path / "data" / "test/cat/1.jpg"), "it's none.jpg"]
    made.probes.slow_samples = [
        {"key": i, "seen": 1, "ms": 9.0, "worst_ms": 9.0, "path": p} for i, p in enumerate(names)
    ]
    path = made.save(tmp_path / "s.json")
    assert run("report", path, "--audit", tmp_path / "run", "-o", tmp_path / "r.md") == 0
    text = (tmp_path / "r.md").read_text()
    for name in names[:2]:
        size = (tmp_path / "data" / name).stat().st_size
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
        assert f"96 x 72, {size:,} bytes, JPEG" in row
    assert run("report", path) == 0
    assert "96 x 72" not in capsys.readouterr().out
    made.probes.slow_samples = made.probes.slow_samples[2:]
    path = made.save(tmp_path / "s.json")
    for folder, said in (("run", "none of the 1 slowest samples"), ("data", "no finished scan")):
        assert run("report", path, "--audit", tmp_path / folder) == 2
        assert said in capsys.readouterr().err


# ---- a newcomer: profile a loader, do what is advised, compare: as it is printed ----


COMMAND = re.compile(r"pipeline-profiler (.+?)(?=   |,|`|$)", re.MULTILINE)
LOADER = """
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((3, 8, 8), index % 7, dtype=torch.float32), index % 10


def make_loader():
    return DataLoader(Pictures(), batch_size=8)
"""


STEP_MS, BATCH_MS = 30.0, 40.0


def measured(bench: Bench, options: Options) -> Session:
    """The session of a loader of the file on a machine where samples take what they sleep."""
    settings = bench.settings()
    rows = schedule(120, settings["workers"], 2, STEP_MS, lambda j: BATCH_MS)
    session: Session = made_session(rows, STEP_MS, **settings | {"prefetch": 2})
    return session


def test_profile_apply_the_advice_and_compare_by_printed_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPELINE_PROFILER_RUNS", "off")
    # what is advised after a measurement of this machine is a matter of what else runs on it
    monkeypatch.setattr(measuring, "measure_arms", measured)
    file = tmp_path / "pets.py"
    file.write_text(LOADER)
    measure = shlex.split(f"run pets.py:make_loader --emulate-step-ms {STEP_MS}")
    assert command_line([*measure, "-o", "before.json"]) == 0
    screen = capsys.readouterr().out
    (advised,) = re.findall(r"-> num_workers=(\d+)", screen)
    told = [shlex.split(words) for words in COMMAND.findall(screen)]
    (report,) = (words for words in told if words[0] == "report" and "-o" in words)
    assert command_line(report) == 0
    assert (tmp_path / report[-1]).stat().st_size > 10_000
    (compare,) = (words for words in told if "--against" in words)
    file.write_text(LOADER.replace("size=8)", f"size=8, num_workers={advised})"))
    del sys.modules["pets"]  # a command of its own reads the file anew
    assert command_line([*measure, "-o", compare[-1]]) == 0
    capsys.readouterr()
    assert command_line(compare) == 0
    assert re.match(r"B is .* times ", capsys.readouterr().out)
