"""The routes of `/api/v1`: the table, and what each answers with functions that exist elsewhere."""

from __future__ import annotations

import base64
import json
import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from audit.compare.diff import compare_runs
from audit.decisions import decisions
from audit.decisions.store import Decision, DecisionStore, Entry
from audit.errors import UsageError
from audit.report import FORMATS, PICTURED, collect_report, render
from audit.report.documents import finding_facts
from audit.report.previews import FOLDER, ThumbnailCache, view
from audit.report.thumbnails import Thumbnail
from audit.results import findings, images
from audit.results.filters import from_link
from audit.results.findings import FindingFilter
from audit.results.history import add_moment, append_line, read_history, read_lines
from audit.results.images import Edge, Order
from audit.results.label_review import count_suspects, load_suspects
from audit.results.report_data import Card
from audit.results.results import list_groups, open_results
from audit.run import run_version
from audit.run.user_query import query_json
from audit.service.api import (
    JSON,
    ApiCall,
    ApiField,
    ApiRoute,
    RefusedError,
    Reply,
    Turns,
    describe_api,
)
from audit.service.datasets import PROFILES
from audit.service.jobs import RECHECK, SCAN, JobQueue, job_facts
from audit.service.people import ADMIN, REVIEWER, VIEWER, check_name
from audit.subset import Goal, draw_subset, make_plan, score_subset
from audit.subset.draw import recipe_from
from audit.subset.predictions import standard_columns
from audit.subset.source import frame_from_run

QUERIES = Turns(2)  # each is a process of up to 2 GB
DIFFS = Turns(1)  # each takes the memory that DuckDB is given
MOST_LARGE = 32 << 20  # bytes of a body with a picture or with predictions
KINDS = {"txt": "text/plain", "md": "text/markdown", "html": "text/html", "xml": "application/xml"}


def get_openapi(call: ApiCall) -> Any:
    """Return the description of the API."""
    return describe_api(ROUTES)


def get_datasets(call: ApiCall) -> Any:
    """Return a line for each dataset that the person may see."""
    served = call.service.datasets(call.person).values()
    return {"datasets": [asdict(call.service.line(one)) for one in served]}


def get_history(call: ApiCall) -> Any:
    """Return what each scan found, came and went, oldest first."""
    run = call.dataset.run
    moments = read_history(run) if call.dataset.pushed else open_results(run).history()
    return {"moments": [asdict(moment) for moment in moments]}


def get_diff(call: ApiCall) -> Any:
    """Return what changed between two versions that are kept, as `audit diff --json`."""
    kept = run_version.list_published(call.dataset.run)
    known = {name: one.findings for one in kept for name in (one.path.name, one.name)}
    asked = call.words["before"], call.words["after"] or (kept[-1].name if kept else "")
    if unknown := [name for name in asked if name not in known]:
        raise UsageError(f"{unknown[0]!r} is not kept: {', '.join(known) or 'nothing is'}.")
    found = compare_runs(*(known[name] for name in asked))
    # by their names: where the run lies is nobody's business
    named = replace(found, before=Path(asked[0]), after=Path(asked[1]))
    return Reply(named.document().encode(), JSON)


def get_findings(call: ApiCall) -> Any:
    """Return findings under a filter, the worst first."""
    words = call.words
    codes = tuple(code.strip().upper() for code in (words["code"] or "").split(",") if code)
    filters = FindingFilter(
        codes, words["severity"], words["split"], None, words["label"], words["status"],
        words["text"] or "", order=words["order"] or "cost",
    )  # fmt: skip
    results = open_results(call.dataset.run)
    start = 0
    if words["after"]:
        place = findings.place_of(results, words["after"], filters.order)
        if place is None:
            raise UsageError("after names a finding that is gone: begin with the first page.")
        start = place + 1
    page = findings.page(results, filters, start=start, size=words["limit"])
    total = findings.count_findings(results, filters)
    return {
        "findings": [_without(row, "place", "fold", "n_folded") for row in page.rows],
        "total": total, "next": page.rows[-1].fingerprint if page.after and page.rows else None,
    }  # fmt: skip


def _without(row: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name not in names}


def get_finding(call: ApiCall) -> Any:
    """Return one finding with its evidence and its first samples."""
    results = open_results(call.dataset.run)
    opened = findings.open_finding(results, call.words["fingerprint"])
    if opened is None:
        raise RefusedError(404, "This run has no such finding.")
    more = {"status": opened.status, "n_samples": opened.finding.n_samples}
    return finding_facts(opened.finding) | more


def get_pictures(call: ApiCall) -> Any:
    """Return samples under a filter, sorted."""
    words = call.words
    column = words["sort"].removeprefix("-")
    results = open_results(call.dataset.run)
    page = images.page(
        results, from_link(words["where"] or ""), Order(column, words["sort"][:1] == "-"),
        after=Edge.from_link(words["after"] or ""), size=words["limit"],
    )  # fmt: skip
    following = page.last.to_link() if page.after and page.last else None
    return {"pictures": [_without(card, "uri") for card in page.cards], "next": following}


def get_picture(call: ApiCall) -> Any:
    """Return a picture as a JPEG of at most 1,200 px."""
    return _jpeg(view(_card(call)))


def get_thumbnail(call: ApiCall) -> Any:
    """Return a picture as a JPEG of at most 256 px."""
    return _jpeg(ThumbnailCache(call.dataset.run / FOLDER).many([_card(call)])[0])


def _card(call: ApiCall) -> Card:
    results = open_results(call.dataset.run)
    found = images.cards(results, [call.words["id"]])
    if not found:
        raise RefusedError(404, "This run has no image of this id.")
    return found[0]


def _jpeg(made: Thumbnail) -> Reply:
    if not made.data:
        raise RefusedError(404, f"There is nothing to show of this image: {made.error}.")
    return Reply(made.data, "image/jpeg")


def get_groups(call: ApiCall) -> Any:
    """Return groups of near-duplicates with their members."""
    limit, after = call.words["limit"], call.words["after"] or ""
    found = list_groups(open_results(call.dataset.run), after, limit + 1)
    following = found[limit - 1]["group"] if len(found) > limit else None
    return {"groups": found[:limit], "next": following}


def get_labels(call: ApiCall) -> Any:
    """Return labels, the most doubtful first."""
    first, limit = call.words["after"] + 1, call.words["limit"]
    results = open_results(call.dataset.run)
    total = count_suspects(results)
    rows = load_suspects(results, first, limit)
    last, found = first + limit - 1, [asdict(row) for row in rows]
    return {"labels": found, "total": total, "next": last if last < total else None}


def get_report(call: ApiCall) -> Any:
    """Return the report in a format."""
    form = call.words["format"]
    report = collect_report(call.dataset.run, worst=5 if form == "txt" else PICTURED)
    return Reply(render(report, form), KINDS.get(form, "application/json"))


def run_sql(call: ApiCall) -> Any:
    """Return the first rows of a SELECT."""
    return Reply(query_json(call.dataset.run, call.words["query"], call.words["limit"]), JSON)


def get_people(call: ApiCall) -> Any:
    """Return who was invited."""
    return {"people": [asdict(one) for one in call.service.people.invited()]}


def find_picture(call: ApiCall) -> Any:
    """Return the samples that show a picture, the surest first."""
    try:
        sent = base64.b64decode(call.words["picture"], validate=True)
    except ValueError:
        raise UsageError("The image file in the body is not base64: encode its bytes.") from None
    with tempfile.TemporaryDirectory(prefix="audit-find-") as folder:
        path = Path(folder) / "the image"
        path.write_bytes(sent)
        try:
            found = call.service.find(call.dataset.run, str(path))
        except UsageError as error:
            raise UsageError(str(error).replace(str(path), "What was sent")) from None
    return {"samples": found.drop("path").to_dicts()}


def post_history(call: ApiCall) -> Any:
    """Add what a scan elsewhere found, of a dataset that has no run here."""
    if not call.dataset.pushed:
        raise UsageError("This dataset is scanned here: push to one with `pushed = true`.")
    return {"moment": asdict(add_moment(call.dataset.run, call.words["moment"]))}


def get_profiles(call: ApiCall) -> Any:
    """Return profiles that were pushed, oldest first."""
    return {"profiles": read_lines(call.service.folder / PROFILES)[-call.words["limit"] :]}


def post_profile(call: ApiCall) -> Any:
    """Keep a profile under a name."""
    name, said = check_name(call.words["name"]), call.words["profile"]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    kept = {**said, "name": name, "by": call.person.name, "received": at}
    append_line(call.service.folder / PROFILES, json.dumps(kept))
    return {"name": name, "received": at}


def plan_subset(call: ApiCall) -> Any:
    """Return a plan of an evaluation subset."""
    words = call.words
    frame = frame_from_run(call.dataset.run, words["split"], words["by"])
    try:
        plan = make_plan(frame, Goal(**words["goal"]), by=words["by"])
    except TypeError as error:
        raise UsageError(f"goal, in the body, has no such field or value ({error}).") from None
    return replace(plan, split=words["split"]).document()


def draw_planned(call: ApiCall) -> Any:
    """Return the rows of a plan; the same seed draws the same."""
    rows = _drawn(call)
    return {"columns": rows.columns, "rows": rows.rows()}


def score_planned(call: ApiCall) -> Any:
    """Return what predictions on the rows of a plan say of a model."""
    table = call.words["predictions"].rename({"value": "prediction"})
    found = score_subset(_drawn(call), [standard_columns(table)], metrics=[call.words["metric"]])
    return found.document()


def _drawn(call: ApiCall) -> pl.DataFrame:
    plan = call.words["plan"]
    recipe, split = recipe_from(plan), plan.get("split") or "test"
    extra = [*recipe.strata.by, *([recipe.group] if recipe.group else [])]
    frame = frame_from_run(call.dataset.run, str(split), extra)
    return draw_subset(frame, recipe, call.words["seed"]).rows


def list_jobs(call: ApiCall) -> Any:
    """Return the latest jobs of the datasets that the person may see, the latest first."""
    seen = call.service.datasets(call.person)
    jobs = _queue(call).jobs(call.words["limit"])
    return {"jobs": [job_facts(job) for job in jobs if job.dataset in seen]}


def ask_job(call: ApiCall) -> Any:
    """Put a scan or a re-check into the queue."""
    return {"job": _queue(call).ask(call.dataset.name, call.words["action"], call.person.name)}


def cancel_job(call: ApiCall) -> Any:
    """Stop a job, or take it from the queue; what it measured is kept."""
    _queue(call).cancel(call.words["job"])
    return {"job": call.words["job"]}


def _queue(call: ApiCall) -> JobQueue:
    if call.service.jobs is None:
        raise RefusedError(503, "The queue of jobs has not begun.")
    return call.service.jobs


def get_decisions(call: ApiCall) -> Any:
    """Return decisions, the newest first."""
    limit, before = call.words["limit"], call.words["before"]
    ids = None if before is None else range(max(1, before - limit), before)
    found = DecisionStore(call.dataset.run).log(limit, ids)
    following = found[-1].id if found and found[-1].id > 1 else None
    return {"decisions": [_facts(one) for one in found], "next": following}


def post_decision(call: ApiCall) -> Any:
    """Record a decision, once for each key."""
    run, words, who = call.dataset.run, call.words, call.person.name
    verb, value = decisions.parse_verb(words["verdict"])
    things, note = words["things"], words["note"]

    def entries() -> list[Entry]:
        parts: tuple[list[str], list[str]] = ([], [])  # samples, findings
        for one in things:
            parts[bool(decisions.FINGERPRINT.match(one) or decisions.CODE.match(one))].append(one)
        made = decisions.named_entries(run, parts[1], parts[0], verb, value, note, who)
        if words["new_name"] != "allow" and (problem := decisions.find_new_name(run, made)):
            raise UsageError(f"{problem} Send new_name: allow, to record it.")
        return made

    asked = json.dumps([things, words["verdict"], note])
    done = DecisionStore(run).record_once(who, words["Idempotency-Key"], asked, entries)
    return {"decisions": [_facts(one) for one in done]}


def delete_decision(call: ApiCall) -> Any:
    """Take back a batch of one's own."""
    batch, at = call.words["batch"], call.words["at"]
    done = DecisionStore(call.dataset.run).undo_batch(str(batch), at, call.person.name)
    if not done:
        raise RefusedError(404, "No active batch of yours has this id.")
    return {"decisions": [_facts(one) for one in done]}


def _facts(one: Decision) -> dict[str, Any]:
    return _without(one, "evidence", "content_hash")


def _limit(most: int = 500, place: str = "query") -> ApiField:
    said = f"how many, 1 to {most:,}"
    return ApiField("limit", said, place, "integer", default=100, least=1, most=most)


ONE = "/datasets/{dataset}"
AFTER = ApiField("after", "`next` of the page before")
ID = ApiField("id", "the id of a sample", needed=True)
PLANNED = (
    ApiField("plan", "a document subset-plan/1", "body", "object", needed=True),
    ApiField("seed", "the same draws the same", "body", "integer", default=0),
)
ROUTES = (
    ApiRoute("GET", "/openapi.json", VIEWER, get_openapi, "OpenAPI 3.1"),
    ApiRoute(
        "GET", "/datasets", VIEWER, get_datasets,
        "name, images, open errors and warnings with their change since the scan before, when it "
        "was scanned, decisions by person, problem, notice (why another version than the published "
        "is read)",
    ),
    ApiRoute(
        "GET", f"{ONE}/history", VIEWER, get_history,
        "moments: the lines of RUN/history.jsonl, one per scan",
    ),
    ApiRoute(
        "GET", f"{ONE}/diff", VIEWER, get_diff, "a document audit-diff/1",
        (
            ApiField("before", "`generation` of the history, such as gen-0003", needed=True),
            ApiField("after", "a later one; the last where left out"),
        ),
        turns=DIFFS,
    ),
    ApiRoute(
        "GET", f"{ONE}/findings", VIEWER, get_findings, "findings, total, next",
        (
            ApiField("code", "codes or beginnings of codes, such as DUP,IMG001"),
            ApiField("severity", "a severity", choices=("error", "warning", "info")),
            ApiField("split", "a split with a part in them"),
            ApiField("label", "a class with a part in them"),
            ApiField("status", "what was decided", choices=("open", "waived", "decided")),
            ApiField("text", "a part of the message or of a sample's id"),
            ApiField("order", "the order (default cost)", choices=tuple(findings.PLACES)),
            AFTER, _limit(),
        ),
    ),
    ApiRoute(
        "GET", f"{ONE}/findings/{{fingerprint}}", VIEWER, get_finding,
        "one finding with the fields of audit-report/1, its first 60 samples and its status",
    ),
    ApiRoute(
        "GET", f"{ONE}/pictures", VIEWER, get_pictures, "rows of images; next",
        (
            ApiField("where", 'a filter, as in links of the app: [["width","between",0,64]]'),
            ApiField("sort", "a column, -column for the largest first", default="id"),
            AFTER, _limit(),
        ),
    ),
    ApiRoute("GET", f"{ONE}/picture", VIEWER, get_picture, "a JPEG", (ID,), "image/jpeg"),
    ApiRoute("GET", f"{ONE}/thumbnail", VIEWER, get_thumbnail, "a JPEG", (ID,), "image/jpeg"),
    ApiRoute("GET", f"{ONE}/groups", VIEWER, get_groups, "groups, next", (AFTER, _limit())),
    ApiRoute(
        "GET", f"{ONE}/labels", VIEWER, get_labels,
        "suspicious labels: `chance` (probability that the label is wrong), suggested class, "
        "nearest images; total, next",
        (ApiField("after", AFTER.meaning, kind="integer", default=0), _limit()),
    ),
    ApiRoute(
        "GET", f"{ONE}/report", VIEWER, get_report, "the document",
        (ApiField("format", "a format", default="json", choices=FORMATS),), "*/*",
    ),
    ApiRoute(
        "POST", f"{ONE}/sql", VIEWER, run_sql, "columns, rows, cut (whether there are more)",
        (
            ApiField("query", "one SELECT over the tables of docs/schema.md", "body", needed=True),
            _limit(10_000, "body"),
        ),
        turns=QUERIES,
    ),
    ApiRoute(
        "GET", f"{ONE}/decisions", VIEWER, get_decisions, "decisions, undone ones too; next",
        (ApiField("before", AFTER.meaning, kind="integer", least=1), _limit()),
    ),
    ApiRoute(
        "POST", f"{ONE}/decisions", REVIEWER, post_decision, "decisions as they were recorded",
        (
            ApiField("Idempotency-Key", "a key of your own, new for each decision", "header",
                     needed=True),
            ApiField("things", "up to 10,000 ids, fingerprints, or codes for what is open of them",
                     "body", "array", needed=True, least=1, most=10_000),
            ApiField("verdict", "as `audit decide --as` takes it, such as keep or relabel:NAME",
                     "body", needed=True),
            ApiField("note", "why", "body", default=""),
            ApiField("new_name", "whether the verdict may name a class or split that no sample has",
                     "body", default="refuse", choices=("refuse", "allow")),
        ),
    ),
    ApiRoute(
        "DELETE", f"{ONE}/decisions/{{batch}}", REVIEWER, delete_decision, "the undone decisions",
        (ApiField("at", "`at` of its decisions", needed=True),),
    ),
    ApiRoute(
        "POST", f"{ONE}/find", VIEWER, find_picture,
        "samples: id, split, label, kind (bytes, pixels, near), score, transformation",
        (ApiField("picture", "the bytes of an image file in base64", "body", needed=True),),
        most_body=MOST_LARGE,
    ),
    ApiRoute(
        "POST", f"{ONE}/history", REVIEWER, post_history,
        "the stored line; a repeat of the last line adds nothing",
        (ApiField("moment", "a line of RUN/history.jsonl", "body", "object", needed=True),),
    ),
    ApiRoute("GET", "/profiles", VIEWER, get_profiles, "profiles by name", (_limit(),)),
    ApiRoute(
        "POST", "/profiles", REVIEWER, post_profile, "name, received",
        (
            ApiField("name", "what was profiled", "body", needed=True),
            ApiField("profile", "a row of `pipeline-profiler runs`", "body", "object", needed=True),
        ),
    ),
    ApiRoute(
        "POST", f"{ONE}/subsets/plan", VIEWER, plan_subset, "a document subset-plan/1",
        (
            ApiField("goal", 'such as {"n": 500} or {"half_width": 0.01}', "body", "object",
                     needed=True),
            ApiField("split", "a split", "body", default="test"),
            ApiField("by", "columns to stratify by", "body", "array", default=[], most=10),
        ),
    ),
    ApiRoute("POST", f"{ONE}/subsets/draw", VIEWER, draw_planned, "columns, rows", PLANNED),
    ApiRoute(
        "POST", f"{ONE}/subsets/score", VIEWER, score_planned, "metrics with intervals",
        (
            *PLANNED,
            ApiField("predictions", "the class by id of a sample", "body", "texts", needed=True),
            ApiField("metric", "a metric", "body", default="accuracy"),
        ),
        most_body=MOST_LARGE,
    ),
    ApiRoute(
        "GET", "/jobs", VIEWER, list_jobs,
        "number, dataset, action, by, state, said, asked, began, ended, stage", (_limit(),),
    ),
    ApiRoute(
        "POST", f"{ONE}/jobs", ADMIN, ask_job, "the number of the job",
        (ApiField("action", "what to do", "body", needed=True, choices=(SCAN, RECHECK)),),
    ),
    ApiRoute("DELETE", "/jobs/{job}", ADMIN, cancel_job, "the number of the job"),
    ApiRoute("GET", "/people", ADMIN, get_people, "name, role, at, expires, browsers"),
)  # fmt: skip
