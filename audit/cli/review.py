"""`audit decide | undo | log | tags`: parse, one call into the library, format.

What is named by hand is recorded at once. What is picked in bulk (`--code`, `--where`, `--rule`) is
counted and shown first, and recorded only with `--yes`. `audit.cli.main` mounts these commands and
turns errors into one sentence.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import RunArgument, print_lines, quoted, write_note
from audit.errors import UsageError
from preflight import terminal
from preflight.ending import ExitCode

if TYPE_CHECKING:
    from audit.decisions.keeper_rules import Summary
    from audit.decisions.ledger import Decision, Entry

SHOWN = 5  # examples in a preview


ByOption = Annotated[str | None, typer.Option("--by", help="Who decides (default: login name).")]


@dataclass(frozen=True)
class _Picked:
    """What is decided about, how it was picked, and how it is signed."""

    things: Sequence[str]
    codes: Sequence[str]
    where: str | None
    note: str
    by: str | None
    yes: bool
    new_name: bool


def decide_command(
    run: RunArgument,
    things: Annotated[
        list[str] | None,
        typer.Argument(help="Fingerprints of findings, or samples: id, path, end of an id."),
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="keep, drop, relabel:NAME, move:SPLIT, false-positive, fix, tag:NAME, untag:NAME.",
        ),
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
    source: Annotated[
        Path | None,
        typer.Option("--from", help="What people changed in Label Studio (.json), CVAT (.xml)."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Record conflicts of --from too.")
    ] = False,
    new_name: Annotated[
        bool, typer.Option("--new-name", help="Allow a class or split that the run does not have.")
    ] = False,
    note: Annotated[str, typer.Option("--note", help="Why, for those who read it later.")] = "",
    by: ByOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Record a bulk decision.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what a bulk decision would record.")
    ] = False,
) -> None:
    """Decide about findings or samples: keep, drop, relabel, move, or waive a false positive."""
    if dry_run and yes:
        raise UsageError("--dry-run records nothing, and --yes records: leave one of them out.")
    if source is not None:
        if things or verdict or code or where or rule or drop_from:
            raise UsageError("--from FILE says by itself what is decided: leave the rest out.")
        picked = _Picked([], [], None, note, by, yes, new_name)
        _decide_by_file(run, source, picked, overwrite)
        return
    if overwrite:
        raise UsageError("--overwrite goes with --from FILE.")
    if dry_run and things and not (rule or drop_from):
        raise UsageError("--dry-run goes with what picks in bulk: --code, --where, --rule, --from.")
    picked = _Picked(things or [], code or [], where, note, by, yes, new_name)
    if rule or drop_from:
        if where or verdict or len(code or ()) != 1:
            raise UsageError("--rule and --drop-from go with one --code, such as --code DUP003.")
        _decide_by_rule(run, picked, rule or "largest", drop_from or ())
        return
    if verdict is None:
        raise UsageError("Say what to decide: --as drop, for one, or --code DUP003 --rule largest.")
    if bool(things) + bool(code) + bool(where) != 1:
        raise UsageError("Name findings or samples, or pick them with --code or with --where.")
    _decide(run, picked, verdict)


def _decide_by_file(run: Path, path: Path, picked: _Picked, overwrite: bool) -> None:
    from audit.decisions.ledger import Ledger
    from audit.exports.review_tasks import read_review

    found = read_review(run, path, picked.note, picked.by, overwrite=overwrite)
    _refuse_new_name(run, found.entries, picked.new_name)
    verbs = Counter(f"{e.verb}:{e.value}" if e.value else str(e.verb) for e in found.entries)
    lines = [
        f"{_counted(found.read, 'picture')} read; {found.unchanged:,} unchanged; "
        f"{_counted(len(found.entries), 'decision')}."
    ]
    lines += [f"{n:>9,}  {verb}" for verb, n in verbs.most_common()]
    lines += _examples(
        [f"{e.verb}{':' + e.value if e.value else ''}  {_named(e)}" for e in found.entries[:SHOWN]],
        len(found.entries),
    )
    print_lines(lines + [f"  not understood, {n:,}: {why}" for why, n in found.ignored.items()])
    if _is_confirmed(picked.yes, len(found.entries)):
        _say_recorded(run, Ledger(run).record(found.entries))
    if found.conflicts:
        print_lines(f"  conflict: {line}" for line in found.conflicts)
        write_note(
            f"{_counted(len(found.conflicts), 'answer')} not recorded: the picture was decided "
            "since the export. Decide by hand, or add --overwrite to record the file's answers."
        )
        raise typer.Exit(ExitCode.USAGE)


def _decide_by_rule(run: Path, picked: _Picked, rule: str, splits: Sequence[str]) -> None:
    from audit.decisions import keeper_rules

    code = picked.codes[0].upper()
    proposal = keeper_rules.propose(run, code, rule, picked.things or None, splits)
    drops = proposal.filter(~proposal["keep"].fill_null(True))
    shown = [f"{i}  {w}" for i, w in drops.select("sample_id", "why").head(SHOWN).iter_rows()]
    said = _proposal_lines(keeper_rules.summarise(proposal))
    print_lines([*said, *_examples(shown, drops.height)])
    if _is_confirmed(picked.yes, drops.height):
        _say_recorded(run, keeper_rules.apply_rule(run, proposal, picked.note, picked.by))


def _decide(run: Path, picked: _Picked, verdict: str) -> None:
    from audit.decisions import decisions
    from audit.decisions.ledger import Ledger

    verb, value = decisions.parse_verb(verdict)
    if verb == "fix":
        _decide_fixes(run, picked, value)
        return
    signed = (verb, value, picked.note, picked.by)
    if picked.where is not None:
        ids = decisions.select_samples(run, picked.where)
        note = picked.note or f"where {picked.where}"
        entries = decisions.sample_entries(run, ids, verb, value, note, picked.by)
    elif picked.codes:
        entries = decisions.finding_entries(run, picked.codes, *signed)
    else:
        findings, samples = _split(run, picked.things)
        entries = decisions.named_entries(run, findings, samples, *signed)
    _refuse_new_name(run, entries, picked.new_name)
    if picked.where is not None or picked.codes:
        print_lines(_preview(run, entries))
        if not _is_confirmed(picked.yes, len(entries)):
            return
    _say_recorded(run, Ledger(run).record(entries))


def _refuse_new_name(run: Path, entries: Sequence[Entry], allowed: bool) -> None:
    from audit.decisions.decisions import find_new_name

    if not allowed and (problem := find_new_name(run, entries)):
        raise UsageError(f"{problem} Nothing was recorded: add --new-name to record it.")


def _decide_fixes(run: Path, picked: _Picked, name: str | None) -> None:
    """Show each annotation before and after; what was named by hand is recorded at once."""
    from audit.decisions import box_fixes, decisions
    from audit.decisions.ledger import Ledger

    codes = list(picked.codes)
    words, names = (codes, []) if codes else _split(run, picked.things)
    if picked.where is not None or names:
        raise UsageError("fix applies to findings: give fingerprints, or codes with --code BOX001.")
    proposed = decisions.plan_fixes(run, words, name)
    usable = [p for p in proposed if p.fixes]
    entries = box_fixes.fix_entries(run, usable, name, picked.note, picked.by)
    _refuse_new_name(run, entries, picked.new_name)
    changes = [line for p in usable for line in p.lines()]
    lines = [
        f"{_counted(len(usable), 'finding')} to fix, {_counted(len(changes), 'change')} (before -> "
        "after; px of the file's own frame):",
        *_examples(changes[: SHOWN if codes else None], len(changes)),
    ]
    reasons = Counter(p.reason for p in proposed if not p.fixes)
    print_lines(lines + [f"  left open, {n:,}: {reason}" for reason, n in reasons.items()])
    if not codes or _is_confirmed(picked.yes, len(usable)):
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
    from audit.decisions.ledger import Ledger

    undone = Ledger(run).undo(n, by, anyone=anyone)
    for batch, count in Counter(decision.batch for decision in undone).items():
        first = next(d for d in reversed(undone) if d.batch == batch)
        print_lines([f"Took back batch {batch} ({_counted(count, 'decision')}): {_line(first)}"])


def print_decisions(
    run: Path, limit: int = 50, *, stale: bool = False, tags: bool = False, as_json: bool = False
) -> None:
    """List the decisions, newest first; stale and undone ones are marked."""
    if tags:
        _print_tags(run, as_json)
        return
    import polars as pl

    from audit.decisions.decisions import stale_tags
    from audit.decisions.ledger import Ledger
    from audit.decisions.waivers import apply_decisions

    # Only a decision that was not undone can be stale, and only the run itself can tell.
    lapsed = pl.concat(
        [apply_decisions(run).stale.select("decision", "reason"), stale_tags(run)]
    ).sort("decision")
    shown = Ledger(run).log(limit, lapsed["decision"].tail(limit) if stale else None)
    reasons = dict(lapsed.filter(pl.col("decision").is_in([d.id for d in shown])).iter_rows())
    if as_json:
        rows = [asdict(d) | {"stale": reasons.get(d.id)} for d in shown]
        terminal.write_parts([json.dumps(rows, ensure_ascii=False, indent=1), "\n"])
        return
    for d in shown:
        mark = f" [stale: {reasons[d.id]}]" if d.id in reasons else " [undone]" * d.undone
        print_lines([f"{d.id:>6}  {d.at}  {d.by}  {_line(d)}{mark}"])
    if not shown:
        write_note("No decision is stale." if stale else "No decision yet: `audit decide --help`.")
    elif not stale and lapsed.height:
        write_note(
            f"{_counted(lapsed.height, 'decision')} stale: `audit log {quoted(run)} --stale`."
        )


def _print_tags(run: Path, as_json: bool) -> None:
    """List the tags of a run's samples, and how many each is on; `audit decide --as tag:NAME`."""
    from audit.decisions.decisions import count_tags, stale_tags

    counts = dict(count_tags(run).iter_rows())
    if as_json:
        terminal.write_parts([json.dumps(counts, ensure_ascii=False, indent=1), "\n"])
        return
    print_lines([f"{n:>9,}  {tag}" for tag, n in counts.items()])
    if not counts:
        write_note(f"No sample has a tag: `audit decide {quoted(run)} SAMPLE --as tag:NAME`.")
    if stale := stale_tags(run).height:
        write_note(f"{_counted(stale, 'tag')} stale: `audit log {quoted(run)} --stale` says why.")


# ---- formatting ----


def _split(run: Path, things: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the fingerprints, and the ids of the samples that the other words name."""
    from audit.decisions.decisions import CODE, FINGERPRINT
    from audit.report.file_card import find_samples

    prints = [thing for thing in things if FINGERPRINT.match(thing)]
    names = [thing for thing in things if not FINGERPRINT.match(thing)]
    if codes := [name for name in names if CODE.match(name)]:
        raise UsageError(f"{codes[0]} is a code: `--code {codes[0]}` takes all its open findings.")
    return prints, find_samples(run, names)


def _preview(run: Path, entries: Sequence[Entry]) -> list[str]:
    """Return what a bulk decision would record."""
    from audit.decisions.decisions import count_by_split

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
    from audit.decisions.keeper_rules import SPLIT_NEEDED

    hint = {SPLIT_NEEDED: " (name it with --drop-from)"}
    dropped = sum(summary.drops.values())
    lines = [
        f"{_counted(summary.groups, 'open group')}: {_counted(dropped, 'sample')} to drop"
        f"{_places(summary.drops)}, {summary.stay:,} to stay."
    ]
    return lines + [
        f"  left open, {n:,}: {reason}{hint.get(reason, '')}" for reason, n in summary.open.items()
    ]


def _is_confirmed(yes: bool, n: int) -> bool:
    if not yes and n:
        write_note("Nothing was recorded: add --yes to record it.")
    return yes and n > 0


def _say_recorded(run: Path, decided: Sequence[Decision]) -> None:
    from audit.decisions.ledger import whoami

    if decided:
        who = decided[0].by
        mine = "" if who == whoami() else f" --by {shlex.quote(who)}"
        write_note(
            f"Recorded {_counted(len(decided), 'decision')} as batch {decided[0].batch} by {who}; "
            f"`audit undo {quoted(run)}{mine}` takes them back, "
            f"`audit export {quoted(run)} --manifest kept.csv` writes what stays."
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
