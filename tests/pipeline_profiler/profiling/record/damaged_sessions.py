"""Damaged session files, and every reader of a session: a session or one sentence comes out.

The recorded sessions of sample_data (cut to a few steps) and one that has every key a session may
have, with up to three places of the document changed (keys deleted, types and words changed, huge,
infinite and deeply nested values, columns of unequal lengths) or its bytes (cut, flipped, other
encodings).
"""

import copy
import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pipeline_profiler.profiling.diagnose.comparison import compare
from pipeline_profiler.profiling.diagnose.verdict import diagnose_session
from pipeline_profiler.profiling.record.arm import Arm
from pipeline_profiler.profiling.record.session import ProfileError, Run, Session, SpanTable
from pipeline_profiler.report import render
from tests.conftest import ROOT

SESSIONS = ROOT / "sample_data" / "sessions"
STEPS, RUNS_PER_ARM = 24, 2
DEEP: list[Any] = []
for _ in range(60):
    DEEP = [DEEP]
WRONG: tuple[Any, ...] = (
    *(None, True, False, "", "x", "W", "profile/1", "\ud800", "\x1b[2J\u202e", "9" * 400, "ok"),
    *(0, 1, -1, 2, 10**6, 2**31, 2**53, 2**62, -(2**62), 2**63, 10**30, -(10**400)),
    *(0.0, -0.0, 0.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")),
    *([], {}, [None], [1, "x"], [[]], {"": None}, {"a": {"b": 1}}, DEEP, ["x"] * 50, [*range(9)]),
)  # fmt: skip
Document = dict[str, Any]


def cut_short(session: Session) -> Session:
    seen: Counter[Arm] = Counter()
    runs = []
    for run in session.runs:
        seen[run.arm] += 1
        if seen[run.arm] <= RUNS_PER_ARM:
            runs.append(_cut_run(run))
    session.runs = runs
    return session


def _cut_run(run: Run) -> Run:
    run.spans = SpanTable(span for span in run.spans if span.batch < STEPS)
    kept = sum(1 for batch in run.batches["batch"] if batch < STEPS)
    run.batches = {name: column[:kept] for name, column in run.batches.items()}
    run.slow_keys = run.slow_keys[:kept]
    run.warmup = min(run.warmup, 6)
    return run


@cache
def documents() -> tuple[Document, ...]:
    """The sessions that are damaged, as JSON documents."""
    loaded = [cut_short(Session.load(path)) for path in sorted(SESSIONS.iterdir())]
    made = [session.to_json() for session in loaded]
    return (*made, _with_every_key(copy.deepcopy(made[-1])))


def _with_every_key(document: Document) -> Document:
    row = {"setting": "workers=1", "measured_ms": 2.0, "predicted_ms": 2.1, "low_ms": 2.0,
           "high_ms": 2.2, "error": 0.05, "wait_ms": 1.9, "wait_share": 0.5, "limit": "workers",
           "extrapolated": ""}  # fmt: skip
    document |= {
        "sweep": [row], "lowest_ms": 1.8, "partial": True,
        "failed_rules": [{"rule": "r", "error": "E", "text": "t", "at": "a:1"}],
        "cut_off": {"sentence": "no batch for 30 s", "where": "warm loader", "seconds": 30.0,
                    "stacks": [{"of": "the trainer", "frames": ["train.py:3 load: x()"]}]},
    }  # fmt: skip
    document["plan"] |= {
        "unused_fields": {"depth": 8}, "batch_bytes": 100, "piped_bytes": 5.0,
        "prefixes": [{"operation": "map", "ms": 1.0, "total_ms": 2.0, "first_ms": 3.0,
                      "visits": 1.0}],
        "interventions": [{"name": "parallel map", "why": "w", "how": "h", "op": "map",
                           "baseline_ms": 3.0, "period_ms": 2.0, "spread": 0.01, "repeats": 3,
                           "gains": [0.3, 0.3]}],
        "utilisation_symptom": 0.9,
        "synchronising_lines": [{"at": "train.py:3", "per_step": 1.0}],
    }  # fmt: skip
    document["runs"][0] |= {"stacks": {"wait|read|a.py:1 f: g()": 900, "step||b.py:2 h: i()": 5}}
    return document


# ---- damage ----


def _place(draw: Any, document: Document) -> tuple[Any, Any]:
    """A container somewhere in the document and one of its keys."""
    at: Any = document
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        key = draw(st.sampled_from(keys))
        inner = at[key]
        if not isinstance(inner, (dict, list)) or not inner or draw(st.integers(0, 3)) == 0:
            return at, key
        at = inner


def _change(draw: Any, at: Any, key: Any) -> None:
    """Delete, replace, nudge, lengthen, shorten, turn round or exchange a value."""
    value = at[key]
    is_list, is_dict = isinstance(value, list), isinstance(value, dict)
    match draw(st.integers(0, 6)):
        case 0:
            del at[key]
        case 1 if isinstance(value, (int, float)):
            by = draw(st.sampled_from((-1, 0, 1e-9, 1e9, 1e18)))
            at[key] = type(value)(value * by)
        case 1 if isinstance(value, str):
            at[key] = value[::-1]
        case 2 if is_list:
            at[key] += draw(st.sampled_from(([0], [None], value[:5], [-1] * 3)))
        case 2 if is_dict:
            value[draw(st.sampled_from(("x", "W", "load", "")))] = copy.deepcopy(
                draw(st.sampled_from(WRONG))
            )
        case 3 if is_list:
            del value[draw(st.integers(0, len(value))) :]
        case 4 if is_list:
            value.reverse()
        case 4 if isinstance(at, dict):
            other = draw(st.sampled_from(list(at)))
            at[key], at[other] = at[other], value
        case _:
            at[key] = copy.deepcopy(draw(st.sampled_from(WRONG)))  # later changes go into it


def _spoiled(draw: Any, blob: bytes) -> bytes:
    """The bytes, one time in ten cut, with a bit turned, or with bytes put in."""
    at = draw(st.integers(0, len(blob) - 1))
    turned = bytes([blob[at] ^ (1 << draw(st.integers(0, 7)))])
    cut, flipped = blob[:at], blob[:at] + turned + blob[at + 1 :]
    ways = (cut, flipped, cut + b"\xff\xfe\x00" + blob[at:])
    return draw(st.sampled_from((*ways, *[blob] * 27)))


@st.composite
def damaged_files(draw: Any) -> bytes:
    """The bytes of a session file with something wrong in it."""
    document = copy.deepcopy(draw(st.sampled_from(documents())))
    for _ in range(draw(st.integers(1, 3))):
        if document:
            _change(draw, *_place(draw, document))
    blob = _spoiled(draw, json.dumps(document).encode())
    return _spoiled(draw, gzip.compress(blob, 1)) if draw(st.booleans()) else blob


# ---- readers ----


def exercise(blob: bytes) -> str:
    """Read the bytes in every way; '' for a session, or the sentence that refused them.

    Anything else that goes wrong is raised.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        path.write_bytes(blob)
        try:
            session = Session.load(path)
        except ProfileError as error:
            return _sentence(error)
        _render_all(session, Path(folder))
    return ""


def _render_all(session: Session, folder: Path) -> None:
    for ending in (".txt", ".md", ".html", ".json"):
        _allow_refusal(lambda ending=ending: render.make_report(session, f"r{ending}"))
    _allow_refusal(lambda: diagnose_session(session).as_results())
    _allow_refusal(lambda: compare(session, session))
    again = Session.load(session.save(folder / "again.json"))
    assert again.to_json() == session.to_json()


def _allow_refusal(work: Callable[[], object]) -> None:
    try:
        work()
    except ProfileError as error:
        _sentence(error)


def _sentence(error: ProfileError) -> str:
    text = str(error)
    assert text, "a refusal without a word"
    assert len(text) < 600, text
    assert "\n" not in text, text
    return text
