"""The API: what each route answers, to whom, and that each refusal is one sentence of JSON."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from audit.decisions import store
from audit.decisions.recovery import check_decisions
from audit.decisions.store import DecisionStore
from audit.interface import Run
from audit.machine import watched
from audit.report import FORMATS
from audit.run import user_query
from audit.service import api, routes
from audit.service.api import AT_ONCE, MOST_BODY, ApiRoute
from audit.service.bodies import parse_object
from audit.service.people import ADMIN, REVIEWER, ROLES, VIEWER
from audit.service.routes import MOST_LARGE, ROUTES
from tests.audit.run.scanned import recheck_run
from tests.audit.service.conftest import Served

ID = "train/cat/0.jpg"
DECISION = {"things": [ID], "verdict": "keep"}
MOMENT = {
    "at": "2026-01-01T00:00:00+00:00", "generation": "gen-0001/findings-0001.duckdb", "files": 24,
    "severities": {"error": 3, "warning": 4}, "codes": {"DUP001": 7},
}  # fmt: skip
# What a request of a route needs to be answered, by its path.
NEEDS: dict[str, dict[str, Any]] = {
    "diff": {"before": "gen-0001"}, "picture": {"id": ID}, "thumbnail": {"id": ID},
    "sql": {"body": {"query": "SELECT 1 AS one"}}, "find": {"body": {"picture": ""}},
    "jobs": {"body": {"action": "recheck"}}, "history": {"body": {"moment": MOMENT}},
    "profiles": {"body": {"name": "resnet", "profile": {"verdict": "data-bound"}}},
    "plan": {"body": {"goal": {"n": 4}, "split": "train"}},
}  # fmt: skip


def picture(served: Served) -> str:
    """The file of the sample `ID`, as it is sent."""
    images = Run(served.run).images
    return base64.b64encode(Path(images.filter(id=ID)["path"][0]).read_bytes()).decode()


def request(served: Served, route: ApiRoute) -> tuple[str, dict[str, Any]]:
    """A path and the words that a route answers with 200 to who may."""
    words = dict(NEEDS.get(route.path.rsplit("/", 1)[-1], {}))
    if route.method == "POST" and route.path.endswith("/decisions"):
        words = {"body": DECISION, "headers": {"idempotency-key": route.path}}
    if route.path.endswith("/find"):
        words = {"body": {"picture": picture(served)}}
    if route.path.endswith(("/draw", "/score")):
        _, _, plan = served.call("POST", "/datasets/pets/subsets/plan", **NEEDS["plan"])
        more = {"predictions": dict(Run(served.run).images.select("id", "label").iter_rows())}
        words = {"body": {"plan": json.loads(plan)} | (more if "score" in route.path else {})}
    if route.method == "GET":
        words.pop("body", None)
    fingerprint = Run(served.run).findings["fingerprint"][0]
    name = "far" if (route.method, route.path[-8:]) == ("POST", "/history") else "pets"
    path = route.path.replace("{dataset}", name).replace("{fingerprint}", fingerprint)
    path = path.replace("{job}", "1")
    if "{batch}" in path:
        (decided,) = Run(served.run).decide(ID, "drop", by="Ann")
        words["at"], path = decided.at, path.replace("{batch}", decided.batch)
    return path, words


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_each_route_answers_those_of_its_role_and_above_and_nobody_else(
    shared: Served, route: ApiRoute
) -> None:
    path, words = request(shared, route)
    for role in ("", "no token", *ROLES):
        status, headers, body = shared.call(route.method, path, role, **words)
        if role not in ROLES:
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
        elif ROLES.index(role) < ROLES.index(route.role):
            assert status == 403
            assert route.role in json.loads(body)["error"]
        elif "{batch}" in route.path and role != ADMIN:
            assert status == 404  # another's
        else:
            assert status == 200, body
            assert route.kind in ("*/*", headers["content-type"])


def test_what_is_asked_of_a_dataset_is_what_python_says(shared: Served) -> None:
    run = Run(shared.run)
    frame = run.findings
    assert [one["name"] for one in shared.get("/datasets", ADMIN)["datasets"]] == [
        "pets",
        "secret",
        "far",
    ]
    found = shared.get("/datasets/pets/findings")
    assert found["total"] == len(frame) == len(found["findings"])
    assert {one["fingerprint"] for one in found["findings"]} == set(frame["fingerprint"])
    paged, after = [], {}
    while after is not None:
        page = shared.get("/datasets/pets/findings", limit=2, code="dup,split001", **after)
        paged += page["findings"]
        after = {"after": page["next"]} if page["next"] else None
    chosen = [
        one for one in found["findings"] if one["code"][:3] == "DUP" or one["code"] == "SPLIT001"
    ]
    assert paged == chosen
    assert len(paged) == page["total"] > 2
    one = shared.get(f"/datasets/pets/findings/{paged[0]['fingerprint']}")
    assert one["message"] == paged[0]["message"]
    assert (
        one["sample_ids"] == frame.filter(fingerprint=paged[0]["fingerprint"])["ids"][0].to_list()
    )
    assert shared.get("/datasets/pets/findings", severity="info", text="no such")["findings"] == []

    ids, after = [], {}
    while after is not None:
        page = shared.get("/datasets/pets/pictures", limit=7, sort="-width", **after)
        ids += page["pictures"]
        after = {"after": page["next"]} if page["next"] else None
    assert ids[0]["id"] == "train/dog/large.jpg"
    assert sorted(one["id"] for one in ids) == run.images["id"].to_list()
    assert "uri" not in ids[0]
    small = shared.get("/datasets/pets/pictures", where='[["width","between",0,80]]')["pictures"]
    assert [one["id"] for one in small] == ["train/dog/small.jpg"]

    groups = shared.get("/datasets/pets/groups", limit=1)
    known = dict(run.groups.group_by("group").agg("id").sort("group").iter_rows())
    assert groups["groups"] == [
        {"group": next(iter(known)), "ids": sorted(next(iter(known.values())))}
    ]
    assert (groups["next"] is None) == (len(known) == 1)
    assert shared.get("/datasets/pets/labels") == {"labels": [], "total": 0, "next": None}
    assert [m["files"] for m in shared.get("/datasets/pets/history")["moments"]] == run.history[
        "files"
    ].to_list()
    _, _, body = shared.call("POST", "/datasets/pets/sql", body={
        "query": "SELECT id, 1.5 AS x, DATE '2026-01-02' AS d, 'nan'::DOUBLE AS n "
        "FROM samples ORDER BY id",
        "limit": 2})  # fmt: skip
    assert json.loads(body) == {
        "columns": ["id", "x", "d", "n"], "cut": True,
        "rows": [[i, 1.5, "2026-01-02", None] for i in run.images["id"][:2]],
    }  # fmt: skip
    assert [one["name"] for one in shared.get("/people", ADMIN)["people"]] == ["Ada", "Ann", "Vic"]


def test_kept_generations_are_compared_by_name_and_nothing_else_is_opened(served: Served) -> None:
    (name,) = {moment["generation"] for moment in served.get("/datasets/pets/history")["moments"]}
    recheck_run(served.run)
    path = "/datasets/pets/diff"
    found = served.get(path, before=name)
    assert (found["before"], found["after"]) == (name, "gen-0001/findings-0002.duckdb")
    assert found["counts"]["persisting"] == len(Run(served.run).findings)
    assert str(served.run) not in json.dumps(found), "no path of the server"
    for word in ("gen-0009", "../secret/gen-0001", str(served.run / "gen-0001"), ".", ""):
        status, _, body = served.call("GET", path, before=word)
        assert (status, "is not kept" in json.loads(body)["error"]) == (400, True), word


@pytest.mark.parametrize(("path", "longest"), [("picture", 96), ("thumbnail", 96)])
def test_pictures_are_jpegs(shared: Served, path: str, longest: int) -> None:
    _, headers, body = shared.call("GET", f"/datasets/pets/{path}", id=ID)
    shown = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
    assert shown is not None
    assert max(shown.shape) == longest
    assert (headers["content-type"], headers["x-content-type-options"]) == ("image/jpeg", "nosniff")
    assert "sandbox" in headers["content-security-policy"]
    assert shared.call("GET", f"/datasets/pets/{path}", id="train/cat/broken.jpg")[0] == 404


@pytest.mark.parametrize("form", FORMATS)
def test_reports_are_those_of_the_command(shared: Served, form: str, tmp_path: Path) -> None:
    status, _, body = shared.call("GET", "/datasets/pets/report", format=form)
    assert status == 200
    written = str(Run(shared.run).report(tmp_path / f"x.{form}"))
    if form != "txt":  # of which a file has more examples
        assert body == Path(written).read_bytes()
    assert b"DUP001" in body


# ---- decisions ----


def decide(served: Served, key: str, role: str = REVIEWER, **body: Any) -> tuple[int, Any]:
    status, _, answer = served.call(
        "POST", "/datasets/pets/decisions", role, DECISION | body, {"idempotency-key": key}
    )
    return status, json.loads(answer)


def test_a_decision_is_recorded_once_for_each_key_and_signed_by_its_person(served: Served) -> None:
    status, first = decide(served, "a", note="sharp")
    assert status == 200
    (one,) = first["decisions"]
    assert (one["by"], one["verb"], one["subject"], one["note"]) == ("Ada", "keep", ID, "sharp")
    assert decide(served, "a", note="sharp") == (200, first)
    assert len(DecisionStore(served.run).log()) == 1
    assert decide(served, "a", verdict="drop")[0] == 400
    assert decide(served, "a", ADMIN, verdict="drop")[0] == 200  # a key of somebody else
    status, refused = decide(served, "c", verdict="relabel:zebra")
    assert (status, "has the class 'zebra'" in str(refused)) == (400, True)
    assert decide(served, "b")[0] == 200
    assert [d.by for d in DecisionStore(served.run).log()] == ["Ada", "Ann", "Ada"]
    page = served.get("/datasets/pets/decisions", limit=2)
    assert [d["id"] for d in page["decisions"]] == [3, 2]
    assert page["next"] == 2
    rest = served.get("/datasets/pets/decisions", limit=2, before=2)
    assert ([d["id"] for d in rest["decisions"]], rest["next"]) == ([1], None)
    mine = {"path": "/datasets/pets/decisions/1", "at": one["at"]}
    assert served.call("DELETE", role=ADMIN, **mine)[0] == 404
    assert served.call("DELETE", role=REVIEWER, **mine)[0] == 200
    assert served.call("DELETE", role=REVIEWER, **mine)[0] == 404
    line = next(iter(served.get("/datasets")["datasets"]))
    assert line["decided"] == {"Ada": 1, "Ann": 1}


def test_one_key_sent_by_many_at_once_is_one_decision(served: Served) -> None:
    answers: list[Any] = []
    tries = [
        threading.Thread(target=lambda: answers.append(decide(served, "k"))) for _ in range(AT_ONCE)
    ]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    assert {status for status, _ in answers} == {200}
    assert len({str(answer) for _, answer in answers}) == 1
    assert len(DecisionStore(served.run).log()) == 1


def test_a_decision_that_cannot_be_is_not_remembered(served: Served) -> None:
    status, answer = decide(served, "a", things=["nowhere.jpg"])
    assert status == 400
    assert "nowhere.jpg" in answer["error"]
    assert decide(served, "a")[0] == 200


def test_a_key_is_recorded_with_its_decision_or_neither_is(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = store.append_rows

    def fail(con: sqlite3.Connection, table: str, rows: list[Any]) -> None:
        if table == "decisions":  # the batch with the key is written already
            raise sqlite3.OperationalError("disk I/O error")
        append(con, table, rows)

    with monkeypatch.context() as patched:
        patched.setattr(store, "append_rows", fail)
        assert decide(served, "a")[0] == 503
    assert DecisionStore(served.run).log() == []
    assert decide(served, "a")[0] == 200
    assert len(DecisionStore(served.run).log()) == 1
    assert [part.state for part in check_decisions(served.run)] == ["sound", "sound"]


def test_a_code_stands_for_its_open_findings_once(served: Served) -> None:
    waived = {"things": ["IMG001"], "verdict": "false-positive"}
    status, first = decide(served, "w", **waived)
    assert (status, len(first["decisions"])) == (200, 1)
    assert decide(served, "w", **waived) == (200, first)
    found = served.get("/datasets/pets/findings", status="waived")["findings"]
    assert [one["code"] for one in found] == ["IMG001"]


# ---- refusals ----


@pytest.mark.parametrize(
    ("status", "method", "path", "more"),
    [
        (404, "GET", "", {}),
        (404, "GET", "/nothing", {}),
        (404, "GET", "/datasets/none/findings", {}),
        (404, "GET", "/datasets/secret/findings", {}),  # Vic may not see it
        (404, "GET", "/datasets/../findings", {}),
        (404, "GET", "/datasets/runs/pets/findings", {}),
        (404, "GET", "/datasets/pets/findings/0123456789abcdef", {}),
        (404, "GET", "/datasets/pets/picture", {"id": "/etc/passwd"}),
        (404, "GET", "/datasets/pets/thumbnail", {"id": "../../train/cat/0.jpg"}),
        (404, "DELETE", "/datasets/pets/decisions/x", {"role": REVIEWER, "at": "now"}),
        (405, "PUT", "/datasets", {}),
        (405, "POST", "/datasets/pets/findings", {"body": {}}),
        (400, "GET", "/datasets/pets/findings", {"limit": 0}),
        (400, "GET", "/datasets/pets/findings", {"limit": 501}),
        (400, "GET", "/datasets/pets/findings", {"limit": "²"}),
        (400, "GET", "/datasets/pets/findings", {"severity": "fatal"}),
        (400, "GET", "/datasets/pets/findings", {"after": "gone"}),
        (400, "GET", "/datasets/pets/findings", {"run": "/tmp"}),
        (400, "GET", "/datasets/pets/pictures", {"where": "[1]"}),
        (400, "GET", "/datasets/pets/pictures", {"sort": "nothing"}),
        (400, "GET", "/datasets/pets/pictures", {"after": "{"}),
        (400, "GET", "/datasets/pets/pictures", {"after": '["a","b"]', "sort": "width"}),
        (400, "GET", "/datasets/pets/picture", {}),
        (400, "GET", "/datasets/pets/report", {"format": "pdf"}),
        (400, "POST", "/datasets/pets/sql", {"body": {"query": "DROP TABLE samples"}}),
        (400, "POST", "/datasets/pets/sql", {"body": {"query": "SELECT * FROM '/etc/passwd'"}}),
        (400, "POST", "/datasets/pets/sql", {"body": {"query": 1}}),
        (400, "POST", "/datasets/pets/sql", {"body": {"query": "SELECT '\ud800'"}}),
        (400, "POST", "/datasets/pets/sql", {"body": {"query": "SELECT 1", "limit": 10_001}}),
        (400, "POST", "/datasets/pets/sql", {"body": {"query": "SELECT 1", "limit": True}}),
        (400, "POST", "/datasets/pets/sql", {"body": {"query": "SELECT 1", "file": "x"}}),
        (400, "POST", "/datasets/pets/sql", {"body": []}),
        (400, "POST", "/datasets/pets/sql", {"raw": b"[" * 100_000}),
        (400, "POST", "/datasets/pets/sql", {"body": {}, "headers": {"content-type": "a/b"}}),
        (413, "POST", "/datasets/pets/sql", {"raw": b" " * (MOST_BODY + 1)}),
        (400, "POST", "/datasets/pets/decisions", {"role": REVIEWER, "body": DECISION}),
        (403, "POST", "/datasets/pets/decisions", {"body": DECISION}),
        (403, "GET", "/people", {"role": REVIEWER}),
        (401, "GET", "/datasets", {"role": "x" * 43}),
    ],
)  # fmt: skip
def test_a_refusal_is_one_sentence(
    shared: Served, status: int, method: str, path: str, more: dict[str, Any]
) -> None:
    before = DecisionStore(shared.run).revision()
    answer, headers, body = shared.call(method, path, **more)
    assert (answer, headers["content-type"]) == (status, "application/json"), body
    assert list(found := json.loads(body)) == ["error"]
    assert re.fullmatch(r"[^\n]+[.!]", found["error"])
    assert DecisionStore(shared.run).revision() == before


def test_too_much_at_once_is_refused(shared: Served) -> None:
    shared.api._working["Vic"] = AT_ONCE
    status, headers, _ = shared.call("GET", "/datasets")
    assert (status, headers["retry-after"]) == (429, "1")
    assert shared.call("GET", "/datasets", ADMIN)[0] == 200
    shared.api._working["Vic"] = 0


def test_a_query_waits_for_its_turn_unless_it_is_the_second_of_a_person(
    shared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def query(*_: object) -> bytes:
        begun.release()
        assert go.wait(600)
        return b"{}"

    def ask(role: str) -> int:
        return shared.call("POST", "/datasets/pets/sql", role, {"query": "SELECT 1"})[0]

    monkeypatch.setattr(routes, "query_json", query)
    with ThreadPoolExecutor(3) as persons:
        two = [persons.submit(ask, role) for role in (VIEWER, REVIEWER)]
        assert all(begun.acquire(timeout=600) for _ in two)
        assert ask(VIEWER) == 429
        with monkeypatch.context() as patch:
            patch.setattr(api, "TURN_S", 0.1)
            assert ask(ADMIN) == 503
        third = persons.submit(ask, ADMIN)
        while len(routes.QUERIES._people) < 3:
            time.sleep(0.01)
        assert not begun.acquire(blocking=False)
        go.set()
        assert [one.result() for one in (*two, third)] == [200] * 3
    assert routes.QUERIES._people == []


@pytest.mark.slow
def test_a_query_that_takes_long_is_ended(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_query, "LIMIT_S", 0.2)
    long = {"body": {"query": "SELECT count(*) FROM range(100000000000)"}}
    status, _, body = shared.call("POST", "/datasets/pets/sql", **long)
    assert (status, "longer than 0.2 s" in body.decode()) == (400, True)


def test_what_the_server_fails_with_is_a_sentence_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    (served.run / "CURRENT").write_text("{")
    for generation in served.run.glob("gen-*"):
        generation.rename(served.run / "gone")
    status, _, body = served.call("GET", "/datasets/pets/findings")
    assert (status, "damaged" in body.decode()) == (503, True)
    monkeypatch.setattr(served.service, "datasets", lambda person: 1 / 0)
    status, _, body = served.call("GET", "/datasets")
    assert status == 500
    assert "ZeroDivisionError at test_api.py:" in json.loads(body)["error"]


def test_the_description_is_that_of_the_table(shared: Served) -> None:
    document = shared.get("/openapi.json")
    described = {(m.upper(), p) for p, found in document["paths"].items() for m in found}
    assert described == {(route.method, route.path) for route in ROUTES}
    decide_of = document["paths"]["/datasets/{dataset}/decisions"]["post"]
    assert [one["name"] for one in decide_of["parameters"]] == ["dataset", "Idempotency-Key"]
    schema = decide_of["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["things", "verdict"]
    assert all(len(route.answer.__doc__ or "") > 10 for route in ROUTES)


def test_a_picture_that_is_sent_is_found(shared: Served) -> None:
    def ask(sent: str) -> tuple[int, Any]:
        status, _, body = shared.call("POST", "/datasets/pets/find", body={"picture": sent})
        return status, json.loads(body)

    status, found = ask(picture(shared))
    assert (status, found["samples"][0]["id"], found["samples"][0]["kind"]) == (200, ID, "bytes")
    assert "path" not in found["samples"][0]
    _, coded = cv2.imencode(
        ".png", np.random.default_rng(3).integers(0, 255, (64, 64, 3), np.uint8)
    )
    assert ask(base64.b64encode(coded).decode()) == (200, {"samples": []})
    assert ask("no base64!")[0] == 400
    status, refused = ask(base64.b64encode(b"no picture").decode())
    assert (status, refused["error"][:29]) == (400, "What was sent contains no ima")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(shared: Served) -> None:
    for path, most in (("sql", MOST_BODY), ("find", MOST_LARGE), ("subsets/score", MOST_LARGE)):
        for declared, status in ((most + 1, 413), (10**30, 413), (most, 400)):
            headers = {"content-length": str(declared)}
            words: dict[str, Any] = {"headers": headers, "raw": b"[]"}
            assert shared.call("POST", f"/datasets/pets/{path}", **words)[0] == status


def test_a_large_body_is_parsed_while_others_are_answered(
    shared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()

    def parse(body: bytes) -> dict[str, Any]:
        begun.set()
        assert go.wait(600)
        return parse_object(body)

    monkeypatch.setattr(api, "parse_apart", parse)
    raw = b'{"predictions": {}, "plan": {}}' + b" " * MOST_BODY

    async def ask_both() -> list[int]:
        score = "/datasets/pets/subsets/score"
        large = asyncio.create_task(shared.answer("POST", score, raw=raw))
        assert await asyncio.to_thread(begun.wait, 600)
        small = await shared.answer("GET", "/datasets")
        go.set()
        return [(await large)[0], small[0]]

    with ThreadPoolExecutor(1) as thread:  # a browser of another test keeps this thread's loop
        assert thread.submit(asyncio.run, ask_both()).result() == [400, 200]


@pytest.mark.slow
def test_what_a_large_body_holds(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, sent = shared.call("POST", "/datasets/pets/subsets/plan", **NEEDS["plan"])
    body = {"plan": json.loads(sent), "predictions": {f"ä{i}": "cat" for i in range(500_000)}}
    body["predictions"] |= dict(Run(shared.run).images.select("id", "label").iter_rows())
    status, _, scored = shared.call("POST", "/datasets/pets/subsets/score", body=body)
    value = json.loads(scored)["models"][0]["metrics"][0]["estimands"]["full-set"]["value"]
    assert (status, value) == (200, 1.0)
    picture = {"picture": base64.b64encode(b"no picture" * 400_000).decode()}
    status, _, refused = shared.call("POST", "/datasets/pets/find", body=picture)
    assert (status, "contains no image" in refused.decode()) == (400, True)
    for wrong, why in (
        (b'{"plan": [' + b"[]," * 900_000 + b"[]]}", "send less"),
        (b"[" * 2_000_000, "no JSON object"),
        (json.dumps({"predictions": {i: i for i in range(100_000)}}).encode(), "1,048,576 bytes"),
        (json.dumps({"more": "x" * 2_000_000}).encode(), "has no 'more' here"),
        (json.dumps({"plan": "x" * 2_000_000}).encode(), "plan, in the body"),
        (json.dumps({"plan": dict.fromkeys(range(200_000), "x")}).encode(), "plan, in the body"),
    ):  # fmt: skip
        status, _, refused = shared.call("POST", "/datasets/pets/subsets/score", raw=wrong)
        assert (status, why in refused.decode()) == (400, True), refused
    with monkeypatch.context() as patch:
        patch.setattr(watched, "MAX_RESIDENT_BYTES", 1)
        status, _, refused = shared.call("POST", "/datasets/pets/find", body=picture)
        assert (status, "cannot be parsed" in refused.decode()) == (400, True)


def test_jobs_are_asked_for_listed_and_cancelled(served: Served) -> None:
    path, body = "/datasets/secret/jobs", {"action": "scan"}
    for _ in range(2):
        status, _, sent = served.call("POST", path, ADMIN, body)
        assert (status, json.loads(sent)) == (200, {"job": 1})
    assert [job["by"] for job in served.get("/jobs", ADMIN)["jobs"]] == ["Ann"]
    assert served.get("/jobs")["jobs"] == []  # of a dataset that Vic may not see
    assert served.call("DELETE", "/jobs/1", ADMIN)[0] == 200
    assert served.get("/jobs", ADMIN)["jobs"][0]["state"] == "cancelled"
    assert served.call("DELETE", "/jobs/x", ADMIN)[0] == 404
    assert served.call("POST", path, ADMIN, {"action": "apply"})[0] == 400


def test_what_is_scanned_elsewhere_is_a_line_with_its_history(served: Served) -> None:
    path, later = "/datasets/far/history", MOMENT | {"severities": {"error": 5}}
    for moment in (MOMENT, MOMENT, later):
        assert served.call("POST", path, REVIEWER, {"moment": moment})[0] == 200
    assert [one["severities"] for one in served.get(path, REVIEWER)["moments"]] == [
        MOMENT["severities"], {"error": 5},
    ]  # fmt: skip
    line = served.get("/datasets", REVIEWER)["datasets"][-1]
    assert (line["name"], line["pictures"], line["errors"], line["warnings"]) == ("far", 24, 5, 0)
    assert (line["errors_change"], line["trend"], line["problem"]) == (2, [7, 5], "")
    for wrong in ({"at": "today"}, {"files": "many"}, {"codes": {"X": -1}}, {"more": 1},
                  {"named": [[1]]}, {"codes": 3}):  # fmt: skip
        status, _, body = served.call("POST", path, REVIEWER, {"moment": MOMENT | wrong})
        assert (status, "not a line of history" in json.loads(body)["error"]) == (400, True)
    status, _, body = served.call("POST", "/datasets/pets/history", REVIEWER, {"moment": MOMENT})
    assert (status, "scanned here" in json.loads(body)["error"]) == (400, True)


def test_a_subset_is_planned_drawn_and_scored_as_in_python(shared: Served) -> None:
    def post(what: str, **body: Any) -> tuple[int, Any]:
        status, _, sent = shared.call("POST", f"/datasets/pets/subsets/{what}", body=body)
        return status, json.loads(sent)

    status, plan = post("plan", goal={"n": 6}, split="train")
    assert (status, plan["n"], plan["split"]) == (200, 6, "train")
    _, drawn = post("draw", plan=plan, seed=3)
    near = Run(shared.run).subset(split="train", seed=3, n=6)
    assert (drawn["columns"], len(drawn["rows"])) == (near.columns, len(near))
    place = near.columns.index("sample_id")
    assert [row[place] for row in drawn["rows"]] == near["sample_id"].to_list()
    right = dict(near.select("sample_id", "label").iter_rows())
    status, score = post("score", plan=plan, seed=3, predictions=right)
    assert (status, score["schema"]) == (200, "subset-score/1")
    assert score["models"][0]["metrics"][0]["estimands"]["full-set"]["value"] == 1.0
    for what, body in (
        ("plan", {"goal": {"size": 3}}), ("plan", {"goal": {"n": 3}, "split": "none"}),
        ("draw", {"plan": {"schema": "x"}}), ("draw", {"plan": plan, "seed": "x"}),
        ("score", {"plan": plan, "predictions": {"a": 1}}),
    ):  # fmt: skip
        status, said = post(what, **body)
        assert status == 400, said


def test_profiles_are_kept_with_who_sent_them(served: Served) -> None:
    for n, value in enumerate((0.4, 0.1)):
        body = {"name": "resnet", "profile": {"value": value, "git_commit": f"c{n}", "by": "Eve"}}
        assert served.call("POST", "/profiles", REVIEWER, body)[0] == 200
    kept = served.get("/profiles")["profiles"]
    assert [(one["name"], one["by"], one["value"], one["git_commit"]) for one in kept] == [
        ("resnet", "Ada", 0.4, "c0"), ("resnet", "Ada", 0.1, "c1"),
    ]  # fmt: skip
    assert [one["value"] for one in served.get("/profiles", limit=1)["profiles"]] == [0.1]
