"""Decisions: an append-only store, what of it still holds, and the commands that write it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from audit.decisions import decisions
from audit.decisions.decisions import decide_findings, decide_samples
from audit.decisions.store import DATABASE, DecisionStore, Entry
from audit.decisions.waivers import apply_decisions
from audit.errors import AuditError, LockedError, RunError, UsageError
from audit.records import Action
from audit.report import collect_report
from tests.audit.conftest import Command
from tests.audit.reviewed import copy, findings, reviewed_dataset, save, scan, statuses
from tests.audit.run.scanned import as_nobody
from tests.conftest import ROOT, picture

pytestmark = pytest.mark.slow


def sample(subject: str, verb: Action, value: str | None = None, by: str = "anna") -> Entry:
    return Entry("sample", subject, "h", verb, value, "", by)


# ---- the store ----


def test_what_is_recorded_comes_back(tmp_path: Path) -> None:
    ledger = DecisionStore(tmp_path, clock=lambda: datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert ledger.log() == []
    assert ledger.current().is_empty()
    assert not ledger.path.exists(), "reading makes no file"
    first = ledger.record([sample("a", Action.RELABEL, "cat"), sample("b", Action.DROP)])
    second = ledger.record([sample("c", Action.MOVE, "test", by="ben")])
    assert ledger.log() == [*second, *reversed(first)]
    assert [d.batch for d in first] == ["1", "1"]
    assert second[0].batch == "2"
    assert second[0].at == "2026-03-01T12:00:00+00:00"
    assert (second[0].by, second[0].value, second[0].undone) == ("ben", "test", False)
    assert ledger.log(1) == second


def test_undo_adds_rows_and_takes_back_whole_batches(tmp_path: Path) -> None:
    ledger = DecisionStore(tmp_path)
    revisions = [ledger.revision()]
    ledger.record([sample("a", Action.DROP), sample("b", Action.DROP)])
    revisions.append(ledger.revision())
    ledger.record([sample("a", Action.KEEP)])
    revisions.append(ledger.revision())
    assert [d.subject for d in ledger.undo(1, "anna")] == ["a"]
    assert len({*revisions, ledger.revision()}) == 4, "each decision and undo is another revision"
    assert ledger.current().select("subject", "verb").rows() == [("a", "drop"), ("b", "drop")]
    assert [d.subject for d in ledger.undo(5, "anna")] == ["b", "a"]
    assert ledger.current().is_empty()
    assert [d.undone for d in ledger.log()] == [True, True, True]
    with pytest.raises(UsageError, match="no decision left"):
        ledger.undo(1, "anna")


def test_undo_leaves_the_decisions_of_others_alone(tmp_path: Path) -> None:
    ledger = DecisionStore(tmp_path)
    ledger.record([sample("a", Action.DROP, by="anna")])
    ledger.record([sample("b", Action.DROP, by="ben")])
    assert [d.subject for d in ledger.undo(1, "anna")] == ["a"]
    with pytest.raises(UsageError, match=r"'anna' has no decision left to undo\. .* by 'ben'"):
        ledger.undo(1, "anna")
    assert [d.subject for d in ledger.undo(1, "ben")] == ["b"]


def test_one_batch_is_taken_back_by_its_number_and_time(tmp_path: Path) -> None:
    ledger = DecisionStore(tmp_path)
    assert ledger.undo_batch("1", "2026-03-01T12:00:00+00:00") == []
    assert not ledger.path.exists(), "nothing is made for nothing"
    first = ledger.record([sample("a", Action.DROP), sample("b", Action.DROP)])[0]
    ledger.record([sample("a", Action.KEEP)])
    assert ledger.undo_batch(first.batch, "2020-01-01T00:00:00+00:00", "anna") == []
    assert [d.subject for d in ledger.undo_batch(first.batch, first.at, "anna")] == ["b", "a"]
    assert ledger.undo_batch(first.batch, first.at, "anna") == []
    assert [d.undone for d in ledger.log()] == [False, True, True]


def test_batches_are_listed_for_their_person_and_others_are_news_to_them(tmp_path: Path) -> None:
    ledger = DecisionStore(tmp_path)
    assert ledger.batches("anna", 9) == []
    ledger.record([sample(name, Action.DROP, by="anna") for name in "abcde"])
    before = ledger.revision()
    ledger.record([sample("a", Action.KEEP, by="anna")])
    assert not ledger.has_news(before, "anna")
    ledger.record([sample("f", Action.KEEP, by="ben")])
    assert ledger.has_news(before, "anna")
    last, first = ledger.batches("anna", 9)
    assert (last.verbs, last.samples, last.findings, last.subjects) == (("keep",), 1, 0, ("a",))
    assert (first.samples, first.subjects) == (5, ("a", "b", "c"))
    assert ledger.undo_batch(first.batch, first.at, "ben") == [], "it is anna's"
    assert len(ledger.undo_batch(first.batch, first.at, "anna")) == 5
    assert [one.batch for one in ledger.batches("anna", 9)] == [last.batch]
    before = ledger.revision()
    ledger.undo(1, "ben")
    assert ledger.has_news(before, "anna")
    assert not ledger.has_news(before, "ben")


def test_the_file_refuses_to_be_rewritten(tmp_path: Path) -> None:
    DecisionStore(tmp_path).record([sample("a", Action.DROP)])
    DecisionStore(tmp_path).undo(1, "anna")
    with sqlite3.connect(tmp_path / DATABASE) as con:
        for sql in (
            "DELETE FROM decisions",
            "UPDATE decisions SET verb = 'keep'",
            "DELETE FROM undos",
            "UPDATE batches SET key = 'x'",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                con.execute(sql)
        assert con.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    con.close()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (sample("a", Action.RELABEL), "relabel:NAME"),
        (sample("a", Action.MOVE, "  "), "move:NAME"),
        (sample("a", Action.DROP, "cat"), "no value"),
        (sample("a", Action.FALSE_POSITIVE), "fingerprint"),
    ],
)
def test_an_incomplete_decision_is_refused_and_none_of_its_batch_recorded(
    entry: Entry, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=says):
        DecisionStore(tmp_path).record([sample("b", Action.KEEP), entry])
    assert DecisionStore(tmp_path).log() == []


def test_text_that_is_no_text_is_stored_escaped(tmp_path: Path) -> None:
    DecisionStore(tmp_path).record(
        [Entry("sample", "a", None, Action.KEEP, None, "odd \udcff", "anna")]
    )
    assert DecisionStore(tmp_path).log()[0].note == "odd \\udcff"


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["keep", "drop", "relabel", "move"]),
            st.sampled_from("ab"), st.sampled_from("xy"),
        ),
        st.just("undo"),
    ),
    max_size=12,
)  # fmt: skip


@given(steps=STEPS)
@settings(max_examples=40)
def test_the_current_view_is_what_replaying_the_log_gives(steps: list[object]) -> None:
    """Against a model: a list of what was done, the last entry removed by an undo."""
    done: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        ledger = DecisionStore(Path(folder))
        for step in steps:
            if isinstance(step, tuple):
                verb, subject, value = step
                named = value if verb in ("relabel", "move") else None
                ledger.record([sample(subject, Action(verb), named)])
                done.append(step)
            elif done:
                ledger.undo(1, "anna")
                done.pop()
        rows = {row["subject"]: row for row in ledger.current().iter_rows(named=True)}
    assert set(rows) == {subject for _, subject, _ in done}
    for subject, row in rows.items():
        mine = [(verb, value) for verb, other, value in done if other == subject]
        assert row["verb"] == mine[-1][0]
        assert row["dropped"] == (mine[-1][0] == "drop")
        assert row["label"] == next((v for verb, v in reversed(mine) if verb == "relabel"), None)
        assert row["split"] == next((v for verb, v in reversed(mine) if verb == "move"), None)


WRITER = """
import sys
from pathlib import Path
from audit.records import Action
from audit.decisions.store import Entry, DecisionStore
run, me = Path(sys.argv[1]), sys.argv[2]
for number in range(100):
    if number % 20 == 0:
        print("ready", flush=True)
        sys.stdin.readline()
    entry = Entry("sample", f"{me}/{number}.jpg", "h", Action.DROP, None, "", me)
    DecisionStore(run).record([entry])
"""


def test_two_processes_write_a_hundred_decisions_each(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name in ("anna", "ben")
    ]  # fmt: skip
    for _ in range(5):  # rounds of twenty each, so that neither is done before the other begins
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
    for writer in writers:
        _, complaint = writer.communicate(timeout=300)
        assert (writer.returncode, complaint) == (0, "")
    log = DecisionStore(tmp_path).log()
    assert len(log) == 200
    assert [d.id for d in log] == list(range(200, 0, -1))
    assert {d.subject for d in log} == {f"{m}/{n}.jpg" for m in ("anna", "ben") for n in range(100)}
    turns = sum(a.by != b.by for a, b in pairwise(log))
    assert turns >= 5, "each round has decisions of both"


def test_a_writer_that_waits_in_vain_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DecisionStore(tmp_path).record([sample("a", Action.DROP)])
    monkeypatch.setattr("audit.decisions.store.BUSY_S", 0.05)
    con = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    con.execute("BEGIN IMMEDIATE")
    with pytest.raises(LockedError, match="nothing was recorded"):
        DecisionStore(tmp_path).record([sample("b", Action.DROP)])
    assert len(DecisionStore(tmp_path).log()) == 1, "readers go on"
    con.execute("ROLLBACK")
    con.close()


def test_a_store_that_cannot_be_used_gets_a_sentence(tmp_path: Path) -> None:
    entry = sample("a", Action.DROP)
    with pytest.raises(RunError, match="There is no run at"):
        DecisionStore(tmp_path / "none").record([entry])
    DecisionStore(tmp_path).record([entry])
    with sqlite3.connect(tmp_path / DATABASE) as con:
        con.execute("PRAGMA user_version = 99")
    con.close()
    for use in (DecisionStore(tmp_path).log, lambda: DecisionStore(tmp_path).record([entry])):
        with pytest.raises(RunError, match=r"newer version \(decisions 99, .*upgrade"):
            use()
    (tmp_path / DATABASE).write_text("this is no database, and long enough to show it " * 9)
    for use in (DecisionStore(tmp_path).current, lambda: DecisionStore(tmp_path).record([entry])):
        with pytest.raises(RunError, match="is damaged"):
            use()
    (tmp_path / DATABASE).unlink()
    (tmp_path / DATABASE).mkdir()
    with pytest.raises(RunError, match="write access"):
        DecisionStore(tmp_path).record([entry])


def test_a_read_only_store_is_read_and_says_why_it_is_not_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        DecisionStore(run).record([sample("a", Action.DROP)])
        (run / DATABASE).chmod(0o444)
        run.chmod(0o555)
        with as_nobody():
            assert len(DecisionStore(run).log()) == 1
            with pytest.raises(RunError, match="cannot be written, so nothing was recorded"):
                DecisionStore(run).record([sample("b", Action.DROP)])
        run.chmod(0o755)
        assert len(DecisionStore(run).log()) == 1


# ---- deciding about samples ----


def test_samples_are_decided_with_their_content(run: Path) -> None:
    decide_samples(run, ["train/cat/0.jpg"], Action.RELABEL, "dog", "whiskers", "anna")
    (row,) = apply_decisions(run).effective.to_dicts()
    assert (row["id"], row["label"], row["dropped"], row["why"]) == (
        "train/cat/0.jpg", "dog", False, "whiskers",
    )  # fmt: skip
    assert len(DecisionStore(run).log()[0].content_hash or "") == 64
    with pytest.raises(UsageError, match=r"no sample 'nobody.jpg' \(and 1 more"):
        decide_samples(run, ["nobody.jpg", "nor.jpg"], Action.DROP)
    with pytest.raises(
        UsageError, match=r"findings of train/cat/dark.jpg are: IMG001 [0-9a-f]{16}"
    ):
        decide_samples(run, ["train/cat/dark.jpg"], Action.FALSE_POSITIVE)


def test_a_condition_selects_samples_and_reads_only(run: Path, tmp_path: Path) -> None:
    ids = decisions.select_samples(run, "width > 100 -- the large one")
    assert ids == ["train/dog/large.jpg"]
    for predicate in (
        "widht > 100",
        f"true); COPY samples TO '{tmp_path}/stolen.csv'; SELECT id FROM samples WHERE (true",
        f"id = (SELECT content FROM read_text('{__file__}'))",
        "true) UNION SELECT 1 WHERE (true",
    ):
        before = sorted(tmp_path.iterdir())
        with contextlib.suppress(UsageError):
            decisions.select_samples(run, predicate)
        assert sorted(tmp_path.iterdir()) == before


# ---- deciding about findings ----


def test_a_waived_finding_is_silent_in_reports_and_exit_codes(run: Path, command: Command) -> None:
    before = collect_report(run)
    errors = [
        f for code in ("DUP001", "FILE001", "LABEL005", "SPLIT001") for f in findings(run, code)
    ]
    (dark,) = findings(run, "IMG001")
    decide_findings(run, [dark], Action.FALSE_POSITIVE, note="a cellar", by="anna")
    report = collect_report(run)
    assert report.settled == {"waived": {"IMG001": 1}}
    assert report.counts.warning == before.counts.warning - 1
    assert report.n_files_concerned == before.n_files_concerned - 1
    assert "Waived as false positives and not counted: IMG001 1." in report.completeness
    document = json.loads(command("report", run, "--json")[1])
    assert document["waived"] == 1
    assert dark not in {f["fingerprint"] for f in document["findings"]}
    once = [found for found in document["findings"] if "same_as" not in found]
    assert len(once) == report.counts.total
    assert command("recheck", run, "--checks", "IMG001", "--fail-on", "warning")[0] == 0
    assert command("decide", run, "--undo", "--by", "anna")[0] == 0
    assert command("recheck", run, "--checks", "IMG001", "--fail-on", "warning")[0] == 1
    assert command("recheck", run, "--checks", "DUP,SPLIT,FILE001,LABEL005")[0] == 1
    decide_findings(run, errors, Action.FALSE_POSITIVE)
    assert command("recheck", run, "--checks", "DUP,SPLIT,FILE001,LABEL005")[0] == 0
    text = command("report", run)[1]
    assert f", {len(errors)} waived; " in " ".join(text.split())


def test_the_status_of_findings(run: Path) -> None:
    (dark,), (broken,) = findings(run, "IMG001"), findings(run, "FILE001")
    (near,), (across,) = findings(run, "DUP003"), findings(run, "SPLIT001")
    decide_findings(run, [dark], Action.FALSE_POSITIVE)
    decide_findings(run, [broken], Action.DROP)
    decide_samples(run, ["train/dog/small.jpg"], Action.DROP)
    assert statuses(run, near, dark, across, broken) == ["open", "waived", "open", "decided"]
    decide_samples(run, ["train/dog/0.jpg", "train/cat/1.jpg"], Action.DROP)
    assert statuses(run, near, dark, across, broken) == [
        "decided", "waived", "decided", "decided",
    ]  # fmt: skip


def test_a_code_stands_for_its_open_findings(run: Path) -> None:
    first, second, third = findings(run, "DUP001")
    decide_findings(run, [second], Action.FALSE_POSITIVE)
    made = decide_findings(run, ["dup001"], Action.KEEP)
    assert {d.subject for d in made if d.kind == "finding"} == {first, third}
    assert len({d.batch for d in made}) == 1
    assert decide_findings(run, ["DUP001"], Action.KEEP) == []


def test_dropping_every_copy_and_dropping_nothing_are_refused(run: Path) -> None:
    for code in ("DUP001", "DUP003", "SPLIT001"):
        with pytest.raises(UsageError, match="would drop every copy"):
            decide_findings(run, [code], Action.DROP)
    with pytest.raises(UsageError, match="no finding ffffffffffffffff"):
        decide_findings(run, ["f" * 16], Action.KEEP)
    with pytest.raises(UsageError, match="'XYZ001'"):
        decide_findings(run, ["XYZ001"], Action.KEEP)
    assert DecisionStore(run).log() == []


def test_a_class_finding_relabels_its_samples(run: Path) -> None:
    decide_findings(run, ["LABEL002"], Action.RELABEL, "cat")
    live = apply_decisions(run).effective
    assert live.select("id", "label").rows() == [("train/Cat/0.jpg", "cat")]


# ---- what still holds ----


@pytest.fixture
def own(tmp_path: Path) -> tuple[Path, Path]:
    """A dataset and a run of its own, for tests that change the files."""
    root = reviewed_dataset(tmp_path / "pets")
    return root, scan(root, tmp_path / "run")


def test_a_decision_follows_a_move_and_is_stale_after_a_change(own: tuple[Path, Path]) -> None:
    root, run = own
    places = ("train/dog/1", "train/dog/2", "train/dog/3", "test/dog/1", "test/dog/2")
    decide_samples(run, [f"{place}.jpg" for place in places], Action.DROP, by="anna")
    (root / "train/dog/1.jpg").rename(root / "train/dog/moved.jpg")
    copy(root / "train/dog/2.jpg", root / "train/dog/twin1.jpg")
    (root / "train/dog/2.jpg").rename(root / "train/dog/twin2.jpg")
    Image.fromarray(picture(77)).save(root / "train/dog/3.jpg", quality=88)
    (root / "test/dog/1.jpg").unlink()
    scan(root, run)
    now = apply_decisions(run)
    assert now.effective["id"].to_list() == ["test/dog/2.jpg", "train/dog/moved.jpg"]
    assert now.effective["why"].to_list() == [
        "drop by anna",
        "drop by anna (moved from train/dog/1.jpg)",
    ]
    reasons = dict(now.stale.select("subject", "reason").iter_rows())
    assert reasons == {
        "train/dog/2.jpg": "file deleted; 2 samples have its content",
        "train/dog/3.jpg": "its content changed since",
        "test/dog/1.jpg": "file deleted; no other file has its content",
    }
    decide_samples(run, ["train/dog/3.jpg"], Action.KEEP)
    assert "train/dog/3.jpg" not in apply_decisions(run).stale["subject"], "decided again"
    decide_samples(run, ["train/dog/moved.jpg"], Action.RELABEL, "cat")
    met = apply_decisions(run).effective.filter(id="train/dog/moved.jpg")
    assert met.select("dropped", "label").row(0) == (False, "cat"), "the latest of two wins"


def test_a_sample_without_a_hash_is_known_by_its_id(run: Path) -> None:
    DecisionStore(run).record(
        [Entry("sample", "train/cat/gone.jpg", None, Action.DROP, None, "", "anna")]
    )
    assert apply_decisions(run).stale["reason"].to_list() == [
        "file deleted; no other file has its content"
    ]


def waived(run: Path) -> set[str]:
    settled = apply_decisions(run).settled
    return set(settled.filter(pl.col("status") == "waived")["fingerprint"])


def test_a_waived_group_stays_silent_pair_by_pair(own: tuple[Path, Path]) -> None:
    root, run = own
    (group,) = findings(run, "DUP003")
    decide_findings(run, [group], Action.FALSE_POSITIVE)
    assert waived(run) == {group}
    another = root / "train/dog/another.jpg"
    save(another, picture(4), 50)
    scan(root, run)
    now = apply_decisions(run)
    assert now.settled.is_empty(), "a fourth image was never looked at"
    # Another representative makes it another finding; the old one is gone, and needs no word.
    (wider,) = findings(run, "DUP003")
    lapsed = [("finding", group, "1 of its samples joined or changed since")]
    found = now.stale.select("kind", "subject", "reason").rows()
    assert found == (lapsed if wider == group else [])
    another.unlink()
    (root / "train/dog/small.jpg").rename(root / "train/dog/elsewhere.jpg")
    (root / "train/dog/large.jpg").unlink()
    scan(root, run)
    assert waived(run) == set(findings(run, "DUP003")), "a waived pair, one renamed"
    assert len(waived(run)) == 1


def test_a_waiver_of_a_class_lapses_when_it_worsens(own: tuple[Path, Path]) -> None:
    root, run = own
    (near,) = findings(run, "LABEL002")
    decide_findings(run, [near], Action.FALSE_POSITIVE)
    Image.fromarray(picture(90)).save(root / "train/dog/new.jpg", quality=88)
    scan(root, run)
    assert waived(run) == {near}, "another class grew"
    Image.fromarray(picture(91)).save(root / "train/Cat/1.jpg", quality=88)
    scan(root, run)
    assert waived(run) == set()
    assert apply_decisions(run).stale["reason"].to_list() == ["it concerned 1 samples and now 2"]


# ---- the commands ----


def test_decide_undo_and_log_on_the_command_line(run: Path, command: Command) -> None:
    (dark,) = findings(run, "IMG001")
    code, _, said = command("decide", run, dark, "cat/dark.jpg", "--as", "keep", "--by", "anna")
    assert code == 0
    assert "Recorded 2 decisions as batch 1 by anna" in said
    assert f"audit decide {run} --undo --by anna" in said
    code, _, said = command("decide", run, "dog/1.jpg", "--as", "relabel:dgo", "--note", "=1+1")
    assert code == 2, "dog/1.jpg is in train and in test"
    assert "matches 2 files" in said
    renamed = ("decide", run, "test/dog/1.jpg", "--as", "relabel:dgo")
    code, _, said = command(*renamed)
    assert (code, "the nearest is 'dog'" in said, len(DecisionStore(run).log())) == (2, True, 2)
    assert command("decide", run, "test/dog/1.jpg", "--as", "move:tets")[0] == 2
    assert command(*renamed, "--new-name")[0] == 0
    assert command("decide", run, "--undo")[1].startswith("Undid batch 2 (1 decision): relabel:dgo")
    lines = command("decide", run, "--log")[1].splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("[undone]")
    assert f"{dark} IMG001 train/cat/dark.jpg" in lines[2]
    entries = json.loads(command("decide", run, "--log", "--json")[1])
    assert [e["undone"] for e in entries] == [True, False, False]


def test_bulk_decisions_count_first(run: Path, command: Command) -> None:
    for arguments in (
        ("--where", "split = 'test'", "--as", "drop"),
        ("--code", "DUP001", "--as", "false-positive"),
        ("--code", "DUP003", "--rule", "keep-largest"),
    ):
        code, out, said = command("decide", run, *arguments)
        assert code == 0
        assert "add --yes" in said
        assert DecisionStore(run).log() == []
        if arguments[0] == "--where":
            assert out.startswith("drop: 9 samples (test 9).")
    code, out, said = command("decide", run, "--code", "DUP003", "--rule", "keep-largest", "--yes")
    assert "1 open group: 2 samples to drop (train 2), 1 to keep." in out
    assert len(DecisionStore(run).log()) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train/cat/0.jpg"], "--as drop"),
        (["train/cat/0.jpg", "--as", "burn"], "is not a decision"),
        (["train/cat/0.jpg", "--as", "relabel"], "relabel:NAME"),
        (["train/cat/0.jpg", "--as", "drop:cat"], "take a name"),
        (["DUP001", "--as", "drop"], "--code DUP001"),
        (["--as", "drop"], "--where"),
        (["nobody.jpg", "--as", "drop"], "Similar"),
        (["--where", "true", "--rule", "largest"], "one --code"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str], says: str, run: Path, command: Command
) -> None:
    code, _, said = command("decide", run, *arguments)
    assert code == 2
    assert says in said
    assert "Traceback" not in said
    assert DecisionStore(run).log() == []


def test_a_run_deleted_under_the_reader_gets_a_sentence(run: Path, command: Command) -> None:
    decide_samples(run, ["train/cat/0.jpg"], Action.DROP)
    shutil.rmtree(run)
    for use in (
        lambda: apply_decisions(run), DecisionStore(run).log, DecisionStore(run).undo,
        lambda: decide_samples(run, ["train/cat/0.jpg"], Action.DROP),
    ):  # fmt: skip
        with pytest.raises(AuditError, match="There is no run at"):
            use()
    for arguments in (
        ("decide", run, "--log"),
        ("decide", run, "--undo"),
        ("decide", run, "a.jpg", "--as", "keep"),
    ):
        code, _, said = command(*arguments)
        assert code == 2
        assert said.count("\n") == 1
