"""`audit decide`: record decisions, undo and list them, and estimate wrong labels by review.

Subjects that are named are recorded at once. Bulk selections (`--code`, `--where`, `--rule`) are
counted and shown first, and recorded only with `--yes`.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import (
    JsonOption,
    RunArgument,
    option_group,
    print_answer,
    print_lines,
    quoted,
    write_note,
)
from audit.errors import UsageError
from dataset_preflight.foundation.ending import ExitCode

if TYPE_CHECKING:
    from audit.decisions.keeper_rules import Summary
    from audit.decisions.store import Decision, Entry

SHOWN = 5  # examples in a preview


@dataclass(frozen=True)
class _Picked:
    """What is decided about, how it was picked, and how it is signed."""

    subjects: Sequence[str]
    codes: Sequence[str]
    where: str | None
    note: str
    by: str | None
    yes: bool
    new_name: bool


select_option = option_group("Selection")
record_option = option_group("Recording")
list_option = option_group("Undo and list")
labels_option = option_group("Estimate wrong labels")


def decide_command(
    run: RunArgument,
    subjects: Annotated[
        list[str] | None,
        typer.Argument(help="Fingerprints of findings, or samples: id, path, end of an id."),
    ] = None,
    verdict: Annotated[
        str | None,
        select_option(
            "--as",
            "keep, drop, relabel:NAME, move:SPLIT, false-positive, fix, tag:NAME, untag:NAME.",
        ),
    ] = None,
    code: Annotated[
        list[str] | None, select_option("--code", "All open findings of a code; repeatable.")
    ] = None,
    where: Annotated[
        str | None, select_option("--where", 'SQL over the `images` view, such as "width < 64".')
    ] = None,
    rule: Annotated[
        str | None,
        select_option("--rule", "Copy to keep: largest, sharpest, least-compressed, split:NAME."),
    ] = None,
    drop_from: Annotated[
        list[str] | None,
        select_option("--drop-from", "Split to drop copies from; repeatable, in order."),
    ] = None,
    source: Annotated[
        Path | None,
        select_option(
            "--from",
            "Changes made in Label Studio (.json) or CVAT (.xml); .jsonl: a copy to restore.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, record_option("--overwrite", "Record conflicts of --from too.")
    ] = False,
    new_name: Annotated[
        bool, record_option("--new-name", "Allow a class or split that the run does not have.")
    ] = False,
    note: Annotated[str, record_option("--note", "Reason, kept in the log.")] = "",
    by: Annotated[str | None, record_option("--by", "Reviewer (default: login name).")] = None,
    yes: Annotated[
        bool, record_option("--yes", "Record a bulk decision; without it, only show it.")
    ] = False,
    undo: Annotated[
        bool, list_option("--undo", "Undo your last batch of decisions, or that of --by.")
    ] = False,
    log: Annotated[bool, list_option("--log", "List the decisions, newest first.")] = False,
    stale: Annotated[
        bool, list_option("--stale", "List only decisions that no longer apply.")
    ] = False,
    tags: Annotated[bool, list_option("--tags", "List the tags with counts.")] = False,
    limit: Annotated[
        int | None,
        list_option(
            "-n", "--limit", "Batches to undo (default 1), or decisions to list (50).", min=1
        ),
    ] = None,
    draw_labels: Annotated[
        int | None, labels_option("--draw-labels", "Draw N labels at random for review.")
    ] = None,
    out: Annotated[Path | None, labels_option("-o", "--output", "CSV of the drawn labels.")] = None,
    reviewed: Annotated[
        Path | None,
        labels_option("--reviewed", "Estimate from that CSV, with yes or no under `wrong`."),
    ] = None,
    seed: Annotated[int, labels_option("--seed", "Seed of --draw-labels.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Keep, drop, relabel, move or waive; undo and list decisions; estimate wrong labels."""
    selected = bool(subjects or verdict or code or where or rule or drop_from)
    modes = {
        "--undo": undo, "--log": log or stale or tags, "--draw-labels": draw_labels is not None,
        "--reviewed": reviewed is not None, "--from": source is not None,
    }  # fmt: skip
    chosen = [name for name, given in modes.items() if given]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} are different actions: use one of them.")
    if chosen and selected:
        raise UsageError(f"{chosen[0]} takes no selection of findings or samples: leave it out.")
    if overwrite and source is None:
        raise UsageError("--overwrite needs --from FILE.")
    if modes["--undo"]:
        _undo(run, limit or 1, by)
    elif modes["--log"]:
        print_decisions(run, limit or 50, stale=stale, tags=tags, as_json=as_json)
    elif draw_labels is not None:
        _draw_labels(run, draw_labels, out, seed, as_json)
    elif reviewed is not None:
        _print_label_estimate(run, reviewed, as_json)
    elif source is not None:
        _decide_by_file(run, source, _Picked([], [], None, note, by, yes, new_name), overwrite)
    else:
        picked = _Picked(subjects or [], code or [], where, note, by, yes, new_name)
        _decide_selected(run, picked, verdict, rule, drop_from or ())


def _decide_selected(
    run: Path, picked: _Picked, verdict: str | None, rule: str | None, drop_from: Sequence[str]
) -> None:
    if rule or drop_from:
        if picked.where or verdict or len(picked.codes) != 1:
            raise UsageError("--rule and --drop-from need one --code, such as --code DUP003.")
        _decide_by_rule(run, picked, rule or "largest", drop_from)
        return
    if verdict is None:
        raise UsageError(
            "Nothing to decide: give --as, such as --as drop, or --code DUP003 --rule largest."
        )
    if bool(picked.subjects) + bool(picked.codes) + bool(picked.where) != 1:
        raise UsageError("Name findings or samples, or select them with --code or with --where.")
    _decide(run, picked, verdict)


def _decide_by_file(run: Path, path: Path, picked: _Picked, overwrite: bool) -> None:
    from audit.decisions.store import DecisionStore
    from audit.exports.review_tasks import read_review

    if path.suffix == ".jsonl":
        _restore(run, path)
        return
    found = read_review(run, path, picked.note, picked.by, overwrite=overwrite)
    _refuse_new_name(run, found.entries, picked.new_name)
    verbs = Counter(map(_verdict, found.entries))
    lines = [
        f"{_counted(found.read, 'image')} read; {found.unchanged:,} unchanged; "
        f"{_counted(len(found.entries), 'decision')}."
    ]
    lines += [f"{n:>9,}  {verb}" for verb, n in verbs.most_common()]
    lines += _examples(
        [f"{_verdict(e)}  {_named(e)}" for e in found.entries[:SHOWN]],
        len(found.entries),
    )
    print_lines(lines + [f"  ignored, {n:,}: {why}" for why, n in found.ignored.items()])
    if _is_confirmed(picked.yes, len(found.entries)):
        _say_recorded(run, DecisionStore(run).record(found.entries))
    if found.conflicts:
        print_lines(f"  conflict: {line}" for line in found.conflicts)
        write_note(
            f"{_counted(len(found.conflicts), 'answer')} not recorded: the image was decided "
            "since the export. Decide by hand, or add --overwrite to record the file's answers."
        )
        raise typer.Exit(ExitCode.USAGE)


def _restore(run: Path, copy: Path) -> None:
    from audit.decisions.recovery import restore_decisions

    try:
        write_note(restore_decisions(run, copy))
    except OSError as error:
        raise UsageError(f"{copy} cannot be read ({error.strerror or error}).") from None


def _decide_by_rule(run: Path, picked: _Picked, rule: str, splits: Sequence[str]) -> None:
    from audit.decisions import keeper_rules

    code = picked.codes[0].upper()
    proposal = keeper_rules.propose(run, code, rule, picked.subjects or None, splits)
    drops = proposal.filter(~proposal["keep"].fill_null(True))
    shown = [f"{i}  {w}" for i, w in drops.select("sample_id", "why").head(SHOWN).iter_rows()]
    said = _proposal_lines(keeper_rules.summarise(proposal))
    print_lines([*said, *_examples(shown, drops.height)])
    if _is_confirmed(picked.yes, drops.height):
        _say_recorded(run, keeper_rules.apply_rule(run, proposal, picked.note, picked.by))


def _decide(run: Path, picked: _Picked, verdict: str) -> None:
    from audit.decisions import decisions
    from audit.decisions.store import DecisionStore

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
        findings, samples = _split(run, picked.subjects)
        entries = decisions.named_entries(run, findings, samples, *signed)
    _refuse_new_name(run, entries, picked.new_name)
    if picked.where is not None or picked.codes:
        print_lines(_preview(run, entries))
        if not _is_confirmed(picked.yes, len(entries)):
            return
    _say_recorded(run, DecisionStore(run).record(entries))


def _refuse_new_name(run: Path, entries: Sequence[Entry], allowed: bool) -> None:
    from audit.decisions.decisions import find_new_name

    if not allowed and (problem := find_new_name(run, entries)):
        raise UsageError(f"{problem} Nothing was recorded: add --new-name to record it.")


def _decide_fixes(run: Path, picked: _Picked, name: str | None) -> None:
    """Show each annotation before and after; what was named by hand is recorded at once."""
    from audit.decisions import box_fixes, decisions
    from audit.decisions.store import DecisionStore

    codes = list(picked.codes)
    words, names = (codes, []) if codes else _split(run, picked.subjects)
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
        _say_recorded(run, DecisionStore(run).record(entries))


def _undo(run: Path, n: int, by: str | None) -> None:
    from audit.decisions.store import DecisionStore

    undone = DecisionStore(run).undo(n, by)
    for batch, count in Counter(decision.batch for decision in undone).items():
        first = next(d for d in reversed(undone) if d.batch == batch)
        print_lines([f"Undid batch {batch} ({_counted(count, 'decision')}): {_line(first)}"])


def print_decisions(
    run: Path, limit: int = 50, *, stale: bool = False, tags: bool = False, as_json: bool = False
) -> None:
    """List the decisions, newest first; stale and undone ones are marked."""
    if tags:
        _print_tags(run, as_json)
        return
    import polars as pl

    from audit.decisions.decisions import stale_tags
    from audit.decisions.store import DecisionStore
    from audit.results.reader import open_reader

    # Only a decision that was not undone can be stale, and only the run itself can tell.
    lapsed = pl.concat(
        [open_reader(run).decisions.applied.stale.select("decision", "reason"), stale_tags(run)]
    ).sort("decision")
    shown = DecisionStore(run).log(limit, lapsed["decision"].tail(limit) if stale else None)
    reasons = dict(lapsed.filter(pl.col("decision").is_in([d.id for d in shown])).iter_rows())

    def lines() -> Iterator[str]:
        for d in shown:
            mark = f" [stale: {reasons[d.id]}]" if d.id in reasons else " [undone]" * d.undone
            yield f"{d.id:>6}  {d.at}  {d.by}  {_line(d)}{mark}"

    rows = [asdict(d) | {"stale": reasons.get(d.id)} for d in shown]
    print_answer(as_json, lambda: rows, lines)
    if as_json:
        return
    if not shown:
        write_note("No decision is stale." if stale else "No decision yet.")
    elif not stale and lapsed.height:
        write_note(
            f"{_counted(lapsed.height, 'decision')} stale: `audit decide {quoted(run)} --stale`."
        )


def _print_tags(run: Path, as_json: bool) -> None:
    from audit.decisions.decisions import count_tags, stale_tags

    counts = dict(count_tags(run).iter_rows())
    print_answer(as_json, lambda: counts, lambda: (f"{n:>9,}  {tag}" for tag, n in counts.items()))
    if as_json:
        return
    if not counts:
        write_note(f"No sample has a tag: `audit decide {quoted(run)} SAMPLE --as tag:NAME`.")
    if stale := stale_tags(run).height:
        write_note(
            f"{_counted(stale, 'tag')} stale: `audit decide {quoted(run)} --stale` lists the "
            "reasons."
        )


def _draw_labels(run: Path, n: int, out: Path | None, seed: int, as_json: bool) -> None:
    from audit.decisions.label_sample import draw_labels, write_drawn

    if out is None:
        raise UsageError("--draw-labels needs -o FILE.csv, to write the labels to.")
    write_drawn(draw_labels(run, n, seed), out)
    said = (
        f"{n:,} labels drawn into {out}: write yes or no under `wrong`, then "
        f"`audit decide {quoted(run)} --reviewed {out}`."
    )
    print_answer(as_json, lambda: {"drawn": n, "path": str(out)}, lambda: [said])


def _print_label_estimate(run: Path, reviewed: Path, as_json: bool) -> None:
    from audit.decisions.label_sample import estimate_wrong

    found = estimate_wrong(run, reviewed)
    print_answer(as_json, lambda: asdict(found), lambda: [found.sentence()])


def _split(run: Path, subjects: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the fingerprints, and the ids of the samples that the other words name."""
    from audit.decisions.decisions import CODE, FINGERPRINT
    from audit.results.file_details import find_samples
    from audit.results.reader import open_reader

    prints = [subject for subject in subjects if FINGERPRINT.match(subject)]
    names = [subject for subject in subjects if not FINGERPRINT.match(subject)]
    if codes := [name for name in names if CODE.match(name)]:
        raise UsageError(f"{codes[0]} is a code: `--code {codes[0]}` takes all its open findings.")
    return prints, find_samples(open_reader(run), names)


def _preview(run: Path, entries: Sequence[Entry]) -> list[str]:
    from audit.decisions.decisions import count_by_split

    samples = [entry.subject for entry in entries if entry.kind == "sample"]
    findings = len(entries) - len(samples)
    parts = [_counted(findings, "finding")] * bool(findings)
    if samples or not findings:
        parts.append(_counted(len(samples), "sample") + _places(count_by_split(run, samples)))
    verb = f"{_verdict(entries[0])}: " if entries else ""
    return [
        f"{verb}{', '.join(parts)}.",
        *_examples([_named(e) for e in entries[:SHOWN]], len(entries)),
    ]


def _proposal_lines(summary: Summary) -> list[str]:
    from audit.decisions.keeper_rules import SPLIT_NEEDED

    hint = {SPLIT_NEEDED: " (name it with --drop-from)"}
    dropped = sum(summary.drops.values())
    lines = [
        f"{_counted(summary.groups, 'open group')}: {_counted(dropped, 'sample')} to "
        f"drop{_places(summary.drops)}, {summary.stay:,} to keep."
    ]
    return lines + [
        f"  left open, {n:,}: {reason}{hint.get(reason, '')}" for reason, n in summary.open.items()
    ]


def _is_confirmed(yes: bool, n: int) -> bool:
    if not (yes and n):
        why = "add --yes to record it" if n else "there is nothing to decide"
        write_note(f"Nothing was recorded: {why}.")
    return yes and n > 0


def _say_recorded(run: Path, decided: Sequence[Decision]) -> None:
    from audit.decisions.store import whoami

    if decided:
        who = decided[0].by
        mine = "" if who == whoami() else f" --by {shlex.quote(who)}"
        write_note(
            f"Recorded {_counted(len(decided), 'decision')} as batch {decided[0].batch} by {who}; "
            f"`audit decide {quoted(run)} --undo{mine}` undoes them, `audit export {quoted(run)} "
            "--out kept` writes the remaining samples."
        )


def _line(d: Decision) -> str:
    return f"{_verdict(d)}  {d.kind} {_named(d)}" + (f"  ({d.note})" if d.note else "")


def _verdict(d: Decision | Entry) -> str:
    return f"{d.verb}:{d.value}" if d.value else str(d.verb)


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
    from audit.results.formatting import counted

    return counted(n, noun)
