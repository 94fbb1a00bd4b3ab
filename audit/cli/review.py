"""`audit decide | undo | log | export`: parse, one call into the library, format.

What is named by hand is recorded at once. What is picked in bulk (`--code`, `--where`, `--rule`) is
counted and shown first, and recorded only with `--yes`. `audit.cli.main` mounts these commands and
turns errors into one sentence.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import terminal
from audit.cli.apply import write_plan
from audit.printable import visible

if TYPE_CHECKING:
    from audit.review.export import ExportResult
    from audit.review.keeper_rules import Summary
    from audit.review.ledger import Decision, Entry

SHOWN = 5  # examples in a preview


class ExportFormat(StrEnum):
    """The format of exported tables, or of the annotations that are exported instead."""

    CSV = "csv"
    PARQUET = "parquet"
    COCO = "coco"
    YOLO = "yolo"
    VOC = "voc"


RunArgument = Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who decides (default: login name).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def decide_command(
    run: RunArgument,
    things: Annotated[
        list[str] | None,
        typer.Argument(help="Fingerprints of findings, or samples: id, path, end of an id."),
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option("--as", help="keep, drop, relabel:NAME, move:SPLIT, false-positive, fix."),
    ] = None,
    code: Annotated[
        list[str] | None, typer.Option("--code", help="All open findings of a code; repeatable.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help='SQL over the `images` view, such as "width < 64".'),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option("--rule", help="Who stays: largest, sharpest, least-compressed, split:NAME."),
    ] = None,
    drop_from: Annotated[
        list[str] | None,
        typer.Option(
            "--drop-from", help="Split to drop from in groups across splits; repeatable, in order."
        ),
    ] = None,
    take_from: Annotated[list[str] | None, typer.Option("--take-from", hidden=True)] = None,
    note: Annotated[str, typer.Option("--note", help="Why, for those who read it later.")] = "",
    by: ByOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Record a bulk decision.")] = False,
) -> None:
    """Decide about findings or samples: keep, drop, relabel, move, or waive a false positive."""
    from audit.errors import UsageError

    # `--take-from` is the name that 0.1 gave to `--drop-from`.
    splits = [*(drop_from or ()), *(take_from or ())]
    if rule or splits:
        if where or verdict or len(code or ()) != 1:
            raise UsageError("--rule and --drop-from go with one --code, such as --code DUP003.")
        chosen = (code or [""])[0].upper()
        _decide_by_rule(run, chosen, rule or "largest", things or None, splits, note, by, yes)
        return
    if verdict is None:
        raise UsageError("Say what to decide: --as drop, for one, or --code DUP003 --rule largest.")
    if bool(things) + bool(code) + bool(where) != 1:
        raise UsageError("Name findings or samples, or pick them with --code or with --where.")
    _decide(run, things or [], verdict, code or [], where, note, by, yes)


def _decide_by_rule(
    run: Path, code: str, rule: str, fingerprints: Sequence[str] | None, splits: Sequence[str],
    note: str, by: str | None, yes: bool,
) -> None:  # fmt: skip
    from audit.review import keeper_rules

    proposal = keeper_rules.propose(run, code, rule, fingerprints, splits)
    drops = proposal.filter(~proposal["keep"].fill_null(True))
    shown = [f"{i}  {w}" for i, w in drops.select("sample_id", "why").head(SHOWN).iter_rows()]
    _print([*_proposal_lines(keeper_rules.summarise(proposal)), *_examples(shown, drops.height)])
    if _is_confirmed(yes, drops.height):
        _say_recorded(run, keeper_rules.apply_rule(run, proposal, note, by))


def _decide(
    run: Path, things: Sequence[str], verdict: str, codes: Sequence[str], where: str | None,
    note: str, by: str | None, yes: bool,
) -> None:  # fmt: skip
    from audit.review import decisions
    from audit.review.ledger import Ledger

    verb, value = decisions.parse_verb(verdict)
    if verb == "fix":
        _decide_fixes(run, things, codes, where, value, note, by, yes)
        return
    if where is not None:
        ids = decisions.select_samples(run, where)
        entries = decisions.sample_entries(
            run, ids, verb, value, note or f"where {where}", by
        )  # fmt: skip
    elif codes:
        entries = decisions.finding_entries(run, codes, verb, value, note, by)
    else:
        prints, names = _split(run, things)
        entries = decisions.named_entries(run, prints, names, verb, value, note, by)
    if where is not None or codes:
        _print(_preview(run, entries))
        if not _is_confirmed(yes, len(entries)):
            return
    _say_recorded(run, Ledger(run).record(entries))
    if value and (warning := decisions.new_name_warning(run, verb, value)):
        _say(warning)


def _decide_fixes(
    run: Path, things: Sequence[str], codes: Sequence[str], where: str | None,
    name: str | None, note: str, by: str | None, yes: bool,
) -> None:  # fmt: skip
    """Show each annotation before and after; what was named by hand is recorded at once."""
    from audit.errors import UsageError
    from audit.review import box_fixes, decisions
    from audit.review.ledger import Ledger

    words, names = (list(codes), []) if codes else _split(run, things)
    if where is not None or names:
        raise UsageError("fix applies to findings: give fingerprints, or codes with --code BOX001.")
    proposed = decisions.plan_fixes(run, words, name)
    usable = [p for p in proposed if p.fixes]
    changes = [line for p in usable for line in p.lines()]
    lines = [
        f"{_counted(len(usable), 'finding')} to fix, {_counted(len(changes), 'change')} (before -> "
        "after; px of the file's own frame):",
        *_examples(changes[: SHOWN if codes else None], len(changes)),
    ]
    reasons = Counter(p.reason for p in proposed if not p.fixes)
    _print(lines + [f"  left open, {n:,}: {reason}" for reason, n in reasons.items()])
    if not codes or _is_confirmed(yes, len(usable)):
        entries = box_fixes.fix_entries(run, usable, name, note, by)
        _say_recorded(run, Ledger(run).record(entries))


def undo_command(
    run: RunArgument,
    n: Annotated[int, typer.Argument(min=1, help="Batches: a bulk decision is one.")] = 1,
    by: ByOption = None,
    anyone: Annotated[
        bool, typer.Option("--anyone", help="The last ones, whoever made them.")
    ] = False,
) -> None:
    """Take back your last decisions; they stay in the log, marked as undone."""
    from audit.review.ledger import Ledger

    undone = Ledger(run).undo(n, by, anyone=anyone)
    for batch, count in Counter(decision.batch for decision in undone).items():
        first = next(d for d in reversed(undone) if d.batch == batch)
        _print([f"Took back batch {batch} ({_counted(count, 'decision')}): {_line(first)}"])


def log_command(
    run: RunArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Newest decisions.")] = 50,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only what does not apply any more, and why.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the decisions, newest first; stale and undone ones are marked."""
    from audit.review.ledger import Ledger
    from audit.review.status import apply_decisions

    # Only a decision that was not undone can be stale, and only the run itself can tell.
    reasons = dict(apply_decisions(run).stale.select("decision", "reason").iter_rows())
    logged = Ledger(run).log(None if stale else limit)
    shown = [d for d in logged if not stale or d.id in reasons][:limit]
    if as_json:
        rows = [asdict(d) | {"stale": reasons.get(d.id)} for d in shown]
        terminal.write_parts([json.dumps(rows, ensure_ascii=False, indent=1), "\n"])
        return
    for d in shown:
        mark = " [undone]" if d.undone else ""
        mark = f" [stale: {reasons[d.id]}]" if d.id in reasons else mark
        _print([f"{d.id:>6}  {d.at}  {d.by}  {_line(d)}{mark}"])
    if not shown:
        _say("No decision is stale." if stale else "No decision yet: `audit decide --help`.")
    elif not stale and reasons:
        _say(f"{_counted(len(reasons), 'decision')} stale: `audit log {_q(run)} --stale`.")


def export_command(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for all of it.")] = None,
    format: Annotated[  # noqa: A002
        ExportFormat,
        typer.Option("--format", help="Of the tables in --out; coco, yolo, voc: annotations."),
    ] = ExportFormat.CSV,
    annotations: Annotated[
        list[str] | None,
        typer.Option("--annotations", help="Annotation file to write (coco, yolo, voc); globs."),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", help="The kept set: x.csv, .parquet or .txt.")
    ] = None,
    quarantine: Annotated[
        Path | None, typer.Option("--quarantine", help="What was dropped, and why; .txt: paths.")
    ] = None,
    changes: Annotated[
        Path | None, typer.Option("--changes", help="Relabelled and moved: x.csv or .parquet.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="Verified pairs of one picture: x.csv, .parquet.")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option("--scores", help="Every feature of every sample: x.csv, .parquet")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="The decided dataset as a plan for `audit apply`.")
    ] = None,
    splits: Annotated[
        str | None, typer.Option("--splits", help="New splits in --plan: train=.8,val=.1,test=.1.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Draws the order of --splits.")] = 0,
    resplit: Annotated[
        bool, typer.Option("--resplit", help="New splits for samples that have one, too.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files that exist.")] = False,
) -> None:
    """Write what a run found and what was decided, as tables; touches no file of the dataset."""
    from audit.errors import UsageError
    from audit.review import export as exports

    named = {
        "manifest": manifest, "quarantine": quarantine, "changes": changes, "pairs": pairs,
        "scores": scores,
    }  # fmt: skip
    targets = {name: path for name, path in named.items() if path is not None}
    if plan is not None:
        if out or targets:
            raise UsageError("--plan is written alone: leave --out and the tables to another call.")
        write_plan(run, plan, splits, seed, resplit, replace)
        return
    if splits or resplit:
        raise UsageError("--splits and --resplit go with --plan PLAN.json.")
    if bool(out) == bool(targets):
        raise UsageError("Say what to write: --out FOLDER for all, or --manifest FILE, --pairs ...")
    if format.value not in (ExportFormat.CSV, ExportFormat.PARQUET):
        if out is None:
            raise UsageError(f"--format {format.value} writes a folder: name it with --out FOLDER.")
        _export_annotations(run, out, format.value, annotations or (), replace)
        return
    if annotations:
        raise UsageError("--annotations goes with --format coco, yolo or voc.")
    if out is not None:
        result = exports.export_tables(run, out, format.value, replace=replace)
    else:
        result = exports.export_files(run, targets, replace=replace)
    _print(_export_lines(run, result))


def _export_annotations(
    run: Path, out: Path, form: str, chosen: Sequence[str], replace: bool
) -> None:
    from audit.review.annotation_export import export_annotations

    result = export_annotations(run, out, form, chosen, replace=replace)
    shown = list(result.files.items())[:SHOWN]
    lines = [f"{n:>9,}  {out / name}" for name, n in shown]
    if len(result.files) > SHOWN:
        lines.append(f"           and {len(result.files) - SHOWN:,} more files")
    lines.append(
        f"{_counted(sum(result.files.values()), 'annotation')} of "
        f"{_counted(result.pictures, 'picture')} written; {result.fixed:,} changed by decisions."
    )
    if result.removed:
        lines.append(f"{_counted(result.removed, 'file')} of an earlier export taken away.")
    _print([*lines, *result.lost, *result.stale])


# ---- formatting ----


def _split(run: Path, things: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the fingerprints, and the ids of the samples that the other words name."""
    from audit.errors import UsageError
    from audit.report.file_card import find_samples
    from audit.review.decisions import CODE, FINGERPRINT

    prints = [thing for thing in things if FINGERPRINT.match(thing)]
    names = [thing for thing in things if not FINGERPRINT.match(thing)]
    if codes := [name for name in names if CODE.match(name)]:
        raise UsageError(f"{codes[0]} is a code: `--code {codes[0]}` takes all its open findings.")
    return prints, find_samples(run, names)


def _preview(run: Path, entries: Sequence[Entry]) -> list[str]:
    """Return what a bulk decision would record."""
    from audit.review.decisions import count_by_split

    samples = [entry.subject for entry in entries if entry.kind == "sample"]
    findings = len(entries) - len(samples)
    parts = [_counted(findings, "finding")] * bool(findings)
    if samples or not findings:
        parts.append(_counted(len(samples), "sample") + _places(count_by_split(run, samples)))
    verb = (
        f"{entries[0].verb}{':' + entries[0].value if entries[0].value else ''}: "
        if entries
        else ""
    )
    return [
        f"{verb}{', '.join(parts)}.",
        *_examples([_named(e) for e in entries[:SHOWN]], len(entries)),
    ]


def _proposal_lines(summary: Summary) -> list[str]:
    from audit.review.keeper_rules import SPLIT_NEEDED

    hint = {SPLIT_NEEDED: " (name it with --drop-from)"}
    dropped = sum(summary.drops.values())
    lines = [
        f"{_counted(summary.groups, 'open group')}: {_counted(dropped, 'sample')} to drop"
        f"{_places(summary.drops)}, {summary.stay:,} to stay."
    ]
    return lines + [
        f"  left open, {n:,}: {reason}{hint.get(reason, '')}" for reason, n in summary.open.items()
    ]


def _export_lines(run: Path, result: ExportResult) -> list[str]:
    lines = [f"{rows:>9,}  {path}" for path, rows in result.files.items()]
    lines.append(
        f"{result.kept:,} samples kept ({result.changed:,} relabelled or moved), "
        f"{result.dropped:,} dropped."
    )
    if result.stale.height:
        lines.append(
            f"{_counted(result.stale.height, 'decision')} stale and not applied: "
            f"`audit log {_q(run)} --stale` says why."
        )
    if result.neutralised:
        lines.append(
            f"{_counted(result.neutralised, 'cell')} got a leading apostrophe, so that no "
            "spreadsheet runs or changes them: `audit scan` takes it off again, and Parquet holds "
            "the text as it is."
        )
    return lines


def _is_confirmed(yes: bool, n: int) -> bool:
    if not yes and n:
        _say("Nothing was recorded: add --yes to record it.")
    return yes and n > 0


def _say_recorded(run: Path, decided: Sequence[Decision]) -> None:
    from audit.review.ledger import whoami

    if decided:
        who = decided[0].by
        mine = "" if who == whoami() else f" --by {shlex.quote(who)}"
        _say(
            f"Recorded {_counted(len(decided), 'decision')} as batch {decided[0].batch} by {who}; "
            f"`audit undo {_q(run)}{mine}` takes them back."
        )


def _line(d: Decision) -> str:
    value = f":{d.value}" if d.value else ""
    return f"{d.verb}{value}  {d.kind} {_named(d)}" + (f"  ({d.note})" if d.note else "")


def _named(d: Decision | Entry) -> str:
    """Return the sample's id, or the fingerprint of a finding with what it was about."""
    if d.kind == "sample":
        return d.subject
    snapshot = json.loads(d.evidence or "{}")
    members = [sample for sample, _ in snapshot.get("members", ())] or [snapshot.get("subject", "")]
    more = f" and {len(members) - 1:,} more" if len(members) > 1 else ""
    return f"{d.subject} {snapshot.get('code', '')} {members[0]}{more}"


def _examples(lines: Sequence[str], total: int) -> list[str]:
    more = total - len(lines)
    return [f"  {line}" for line in lines] + [f"  and {more:,} more"] * bool(more)


def _places(counts: Mapping[str, int]) -> str:
    places = ", ".join(f"{split} {n:,}" for split, n in counts.items())
    return f" ({places})" if places else ""


def _counted(n: int, noun: str) -> str:
    from audit.report.wording import counted

    return counted(n, noun)


def _q(run: Path) -> str:
    return shlex.quote(str(run))


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        terminal.write_text(visible(line))


def _say(text: str) -> None:
    terminal.write_message(visible(text))
