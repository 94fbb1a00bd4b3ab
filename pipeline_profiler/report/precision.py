"""The precision sweep's part of a report: table, flags, sentences, and a chart of two bars a row.

In the chart the upper bar is the compute with batches in hand, the lower one the same step with
the loader attached; a bar's whisker is the 95 % interval, and the line is what the loader delivers
alone. Where the lower bar ends at the line, a faster step buys nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pipeline_profiler.precision.sentences import name, percent
from pipeline_profiler.record.session import Session
from pipeline_profiler.report.charts import COLOURS

Raw = Mapping[str, Any]
WIDTH, LABEL, ROW, BAR = 720, 230, 40, 13
HEAD = (
    *("model", "batch", "precision", "step", "p50 / p95", "samples/s", "with loader", "stall"),
    *("peak memory", "skipped", "loss", "from FP32"),
)


def parts(session: Session) -> list[dict[str, Any]]:
    """Title, lines, head, rows and chart of each section; [] for other sessions."""
    found = session.results.get("precision")
    if not found:
        return []
    rows = found["rows"]
    table = {
        "title": "Precision",
        "lines": tuple(found["sentences"]) + reading(found),
        "head": HEAD,
        "rows": tuple(cells(row) for row in rows),
        "chart": chart(rows, found["loaders"]),
    }
    meaning = {"title": "What the precisions mean here", "lines": tuple(flag_lines(found))}
    return [table, meaning]


def reading(found: Raw) -> tuple[str, ...]:
    """How to read the columns."""
    repeats = max((r["step"]["repeats"] for r in found["rows"] if r["step"]), default=0)
    return (
        f"Means with 95 % interval over {repeats} interleaved repeats on {found['device_name']}; "
        "samples/s with batches in hand, then with the loader attached, measured in one run. "
        "Warm-up and compilation are not in them; steps that AMP skipped are counted, not timed.",
    )


def cells(row: Raw) -> tuple[str, ...]:
    """One line of the table, as text."""
    head = (row["model"], str(row["batch_size"]), name(row) + (" (tiny)" if row["tiny"] else ""))
    if row["status"] != "ok":
        word = {"oom": "out of memory"}.get(row["status"], row["status"])
        return (*head, word, *["n/a"] * (len(HEAD) - 4))
    return (
        *head,
        step(row["step"]),
        quantiles(row["step"]),
        interval(row["synthetic_per_s"]),
        interval(row["loader_per_s"]),
        share(row["stall"]),
        megabytes(row["peak_bytes"]),
        "n/a" if row["skipped"] is None else str(row["skipped"]),
        "n/a" if row["loss_last"] is None else f"{row['loss_last']:.4g}",
        "n/a" if row["loss_apart"] is None else percent(row["loss_apart"]),
    )


def step(arm: Raw | None) -> str:
    """'12.3 ms (12.1 to 12.6)'."""
    if arm is None:
        return "n/a"
    ends = f" ({number(arm['low_ms'])} to {number(arm['high_ms'])})" if arm["low_ms"] else ""
    return f"{number(arm['mean_ms'])} ms{ends}"


def quantiles(arm: Raw | None) -> str:
    """'12.2 / 13.0 ms'."""
    if arm is None or arm["p50_ms"] is None:
        return "n/a"
    return f"{number(arm['p50_ms'])} / {number(arm['p95_ms'])} ms"


def interval(rate: Raw | None) -> str:
    """'1,840 (1,790 to 1,900)'."""
    if rate is None:
        return "n/a"
    ends = "" if rate["low"] is None else f" ({number(rate['low'])} to {number(rate['high'])})"
    return number(rate["value"]) + ends


def number(value: float) -> str:
    """Three figures below 100, whole numbers above."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def share(value: Raw | None) -> str:
    """'12 % (10 to 14)'."""
    if value is None or value["share"] is None:
        return "n/a"
    if value["low"] is None or value["high"] is None:
        return _whole(value["share"])
    return f"{_whole(value['share'])} ({_whole(value['low'])} to {_whole(value['high'])})"


def _whole(value: float) -> str:
    """Whole percent, without a minus before 0."""
    return f"{round(100 * value) + 0:d}%"


def megabytes(count: int | None) -> str:
    """'812 MB', '13.0 GB'."""
    if count is None:
        return "n/a"
    return f"{count / 1e9:.1f} GB" if count >= 1e10 else f"{count / 1e6:,.0f} MB"


def flag_lines(found: Raw) -> list[str]:
    """One line a precision, then what holds for all."""
    recipe = found["recipe"]
    lines = [
        f"{name({'precision': p, 'loss_scale': ''})}: "
        + ", ".join(_flag(k, v) for k, v in f.items())
        for p, f in found["flags"].items()
    ]
    layout = "channels last (NHWC)" if recipe["channels_last"] else "contiguous (NCHW)"
    if found["backend"] == "keras":
        layout = "channels last (NHWC)"
    lines.append(
        f"all rows: {found['backend']} on {found['device_name']}, optimizer {recipe['optimizer']} "
        f"at {recipe['lr']:g}, memory format {layout}, compiled: "
        f"{'yes' if recipe['compile'] else 'no'}, seed {recipe['seed']}"
    )
    how = dict.fromkeys(row["peak_how"] for row in found["rows"] if row["status"] == "ok")
    return lines + [f"peak memory: {text}" for text in how]


def _flag(key: str, value: Any) -> str:
    shown = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
    return f"{key.replace('_', ' ')} {shown}"


# ------------------------------------------------------------------------------------ chart


def chart(rows: Sequence[Raw], loaders: Sequence[Raw]) -> str:
    """Two bars a measured row, samples a second; '' without one."""
    fine = [r for r in rows if r["synthetic_per_s"] and r["loader_per_s"]]
    if not fine:
        return ""
    # wide intervals are cut at the edge: they shall not squeeze the bars
    most = 1.3 * max(r[key]["value"] for r in fine for key in _ARMS)
    scale = (WIDTH - LABEL - 10) / most
    body = [_legend()]
    for i, row in enumerate(fine):
        top = 30 + i * ROW
        label = f"{row['model']} {name(row)} x{row['batch_size']}"
        body.append(_text(LABEL - 8, top + BAR + 4, label, "end"))
        for j, key in enumerate(_ARMS):
            body += _bar(row[key], top + j * (BAR + 2), scale, COLOURS[j], key)
        body += _limit(row, loaders, top, scale, most)
    title = "Samples a second by row: batches in hand, and with the loader attached"
    height = 36 + len(fine) * ROW
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(body)}</svg>'
    )


_ARMS = {"synthetic_per_s": "batches in hand", "loader_per_s": "with the loader"}


def _bar(rate: Raw, y: float, scale: float, colour: str, key: str) -> list[str]:
    width, middle = rate["value"] * scale, y + BAR / 2
    words = f"{_ARMS[key]}: {interval(rate)} samples/s"
    made = [
        f'<rect x="{LABEL}" y="{y}" width="{max(width, 0.5):.1f}" height="{BAR}" fill="{colour}">'
        f"<title>{escape(words)}</title></rect>"
    ]
    end = width
    if rate["low"] is not None:
        end = min(rate["high"] * scale, WIDTH - LABEL - 40.0)
        x1, x2 = LABEL + rate["low"] * scale, LABEL + end
        made.append(
            f'<path d="M{x1:.1f} {middle}H{x2:.1f}M{x1:.1f} {middle - 3}v6'
            f'M{x2:.1f} {middle - 3}v6" stroke="currentColor" stroke-width="1.2" fill="none"/>'
        )
    return [*made, _text(LABEL + end + 6, y + BAR - 2, number(rate["value"]))]


def _limit(row: Raw, loaders: Sequence[Raw], top: float, scale: float, most: float) -> list[str]:
    """What the loader delivers alone, where that is not beyond the chart."""
    own = next((r for r in loaders if all(r[k] == row[k] for k in ("model", "batch_size"))), None)
    if own is None or not own["alone_per_s"] or own["alone_per_s"]["value"] > most:
        return []
    value = own["alone_per_s"]["value"]
    x = LABEL + value * scale
    return [
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 3}" y2="{top + 2 * BAR + 5}" {_DASHED}>'
        f"<title>loader alone: {number(value)} samples/s</title></line>"
    ]


_DASHED = f'stroke="{COLOURS[4]}" stroke-width="2" stroke-dasharray="4 2"'


def _legend() -> str:
    made = [_text(8, 16, "samples/s, 95 % interval:")]
    for i, words in enumerate(_ARMS.values()):
        x = 170 + i * 140
        made.append(f'<rect x="{x}" y="6" width="12" height="12" fill="{COLOURS[i]}"/>')
        made.append(_text(x + 18, 16, words))
    made.append(f'<line x1="455" x2="455" y1="5" y2="19" {_DASHED}/>')
    return "".join([*made, _text(463, 16, "loader alone (none: beyond the edge)")])


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" '
        f'font-family="system-ui, sans-serif" fill="currentColor">{escape(words)}</text>'
    )
