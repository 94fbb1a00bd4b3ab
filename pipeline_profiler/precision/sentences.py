"""What the table says, in sentences: what a precision or a bigger batch buys, and what it asks for.

A ratio is called a gain only when its whole interval lies on one side of 1. The run cannot be
faster than the loader (Amdahl for AMP), so each sentence about compute says what became of it with
the loader attached, why, and how many samples a second the loader would have to deliver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline_profiler.precision.trainer import NAMES

Raw = Mapping[str, Any]
AT_ITS_LIMIT = 0.9  # of what the loader delivers alone


def closing(
    raw: Raw,
    rows: Sequence[Raw],
    loaders: Sequence[Raw],
    ratios: Sequence[Raw],
    gains: Sequence[Raw],
) -> list[str]:
    """All sentences, the speed first."""
    fine = [row for row in rows if row["status"] == "ok"]
    return [
        *(speed(ratio, _row(rows, ratio), _loader(loaders, ratio)) for ratio in ratios),
        *_alone(fine, ratios, loaders),
        *bigger_batches(gains),
        *loss_scales(fine),
        *parities(fine),
        *troubles(rows),
        *memory(raw["largest"]),
    ]


def _row(rows: Sequence[Raw], ratio: Raw) -> Raw:
    keys = ("model", "batch_size", "precision", "loss_scale")
    return next(row for row in rows if all(row[key] == ratio[key] for key in keys))


def _loader(loaders: Sequence[Raw], of: Raw) -> Raw | None:
    keys = ("model", "batch_size")
    return next((row for row in loaders if all(row[key] == of[key] for key in keys)), None)


def name(row: Raw) -> str:
    """'FP16 (scale 128)'."""
    scale = f" (scale {row['loss_scale']})" if row["loss_scale"] not in ("", "dynamic") else ""
    return str(NAMES.get(row["precision"], row["precision"])) + scale


def percent(share: float) -> str:
    """'0.014 %', '2.1 %': two figures, down to what single precision resolves."""
    return "below 0.001 %" if 0 < share < 1e-5 else f"{100 * share:.2g} %"


def times(ratio: Raw) -> str:
    """'2.1x faster (2.0 to 2.2)', '9.0x slower', or that nothing can be told."""
    value, low, high = ratio["share"], ratio["low"], ratio["high"]
    if low is None or high is None:
        return f"{value:.2f}x as fast (one repeat: no interval)"
    if low > 1:
        return f"{value:.2f}x faster ({low:.2f} to {high:.2f})"
    if high < 1 and low > 0:
        return f"{1 / value:.2f}x slower ({1 / high:.2f} to {1 / low:.2f})"
    return f"no faster or slower beyond the noise ({value:.2f}x, {low:.2f} to {high:.2f})"


def speed(ratio: Raw, row: Raw, loader: Raw | None) -> str:
    """What this precision buys over FP32, with the loader attached, and what it asks of it."""
    head = f"{row['model']}, batch {row['batch_size']}: {name(row)} makes the compute "
    text = f"{head}{times(ratio['compute'])} and the run {times(ratio['run'])}"
    if row["tiny"]:
        return f"{text}. This is the tiny row: nothing is to be read off it for a GPU."
    return f"{text}{because(ratio, row, loader)}; {demand(row, loader)}"


def because(ratio: Raw, row: Raw, loader: Raw | None) -> str:
    """Why the run gains less than the compute; '' where that cannot be told from noise."""
    compute, run = ratio["compute"], ratio["run"]
    if compute["low"] is None or run["high"] is None or compute["low"] <= 1:
        return ""
    if run["high"] >= compute["low"]:
        return ""
    used, stall = utilisation(row, loader), row["stall"] or {}
    if used is not None and used >= AT_ITS_LIMIT:
        return f", because the loader is at {used:.0%} of its limit"
    if (stall.get("low") or 0) <= 0:
        return ""
    limit = "" if used is None else f" (the loader is at {used:.0%} of what it delivers alone)"
    return f", because {stall['share']:.0%} of the step is data stall{limit}"


def utilisation(row: Raw, loader: Raw | None) -> float | None:
    """Samples a second of the run over what the loader delivers with nobody else computing."""
    if loader is None or not loader["alone_per_s"] or not row["loader_per_s"]:
        return None
    return float(row["loader_per_s"]["value"] / loader["alone_per_s"]["value"])


def demand(row: Raw, loader: Raw | None) -> str:
    """How much the loader would have to deliver for this row's compute."""
    need = row["synthetic_per_s"]["value"]
    text = f"the loader would have to deliver {need:,.0f} samples/s"
    if loader is None or not loader["alone_per_s"]:
        return f"{text}."
    most = loader["alone_per_s"]["value"]
    compared = "and delivers at most" if most < need else "and delivers, with the cores to itself,"
    return f"{text} {compared} {most:,.0f}."


def _alone(fine: Sequence[Raw], ratios: Sequence[Raw], loaders: Sequence[Raw]) -> Iterator[str]:
    """Rows that no ratio speaks of: what they ask of the loader."""
    told = {(r["model"], r["batch_size"]) for r in ratios}
    for row in fine:
        if (row["model"], row["batch_size"]) not in told and row["synthetic_per_s"]:
            stall = (row["stall"] or {}).get("share")
            lost = "" if stall is None else f", {stall:.0%} of the step is data stall"
            head = f"{row['model']}, batch {row['batch_size']}, {name(row)}"
            yield f"{head}{lost}; {demand(row, _loader(loaders, row))}"


def bigger_batches(gains: Sequence[Raw]) -> Iterator[str]:
    """From the smallest to the largest batch of a model and precision."""
    for gain in gains:
        yield (
            f"{gain['model']}, {name(gain)}: from batch {gain['from']} to {gain['to']} the compute "
            f"is {times(gain['compute'])} in samples/s and the run {times(gain['run'])}."
        )


def loss_scales(fine: Sequence[Raw]) -> Iterator[str]:
    """Whether the loss scale made a difference, in time and in loss."""
    half = [row for row in fine if row["precision"] == "fp16" and row["step"]]
    for key in dict.fromkeys((r["model"], r["batch_size"]) for r in half):
        own = [r for r in half if (r["model"], r["batch_size"]) == key]
        if len(own) < 2:
            continue
        scales = ", ".join(str(r["loss_scale"]) for r in own)
        periods = [r["step"]["mean_ms"] for r in own]
        losses = [r["loss_last"] for r in own]
        apart = (max(losses) - min(losses)) / max(abs(min(losses)), 1e-12)
        overlap = max(r["step"]["low_ms"] or 0.0 for r in own) <= min(
            r["step"]["high_ms"] or float("inf") for r in own
        )
        skips = ", ".join(str(r["skipped"]) for r in own)
        verdict = "no difference to the step beyond the noise" if overlap else "a difference"
        yield (
            f"{key[0]}, batch {key[1]}: loss scales {scales} make {verdict} "
            f"({min(periods):.1f} to {max(periods):.1f} ms); the losses lie {percent(apart)} "
            f"apart, skipped steps {skips}."
        )


def parities(fine: Sequence[Raw]) -> Iterator[str]:
    """How far the loss is from FP32: the farthest row of each model and precision."""
    known = [row for row in fine if row["loss_apart"] is not None]
    for key in dict.fromkeys((r["model"], r["precision"]) for r in known):
        own = [r for r in known if (r["model"], r["precision"]) == key]
        row = max(own, key=lambda r: r["loss_apart"])
        floor = row["loss_floor"]
        nudged = "FP32 from weights nudged by 1e-6"
        chance = "" if floor is None else f"; {nudged} is {percent(floor)} away"
        yield (
            f"{key[0]}, {name(row)}: after {row['loss_steps']} steps from one seed the loss is "
            f"{percent(row['loss_apart'])} from FP32's (batch {row['batch_size']}: "
            f"{row['loss_last']:.4g}{chance})."
        )


def troubles(rows: Sequence[Raw]) -> Iterator[str]:
    """Rows that could not be measured, with the cure."""
    for row in rows:
        if row["status"] != "ok":
            yield f"{row['model']}, batch {row['batch_size']}, {name(row)}: {row['sentence']}"


def memory(largest: Sequence[Raw]) -> Iterator[str]:
    """The largest batch that fits, by model and precision."""
    for row in largest:
        tried = f"found in {len(row['trials'])} trials"
        limit = " (the limit of the search)" if row["limit_reached"] else ""
        trouble = f"; {row['trouble'][0]}" if row["trouble"] else ""
        yield (
            f"{row['model']}, {NAMES[row['precision']]}: the largest batch that fits is "
            f"{row['batch_size']}{limit}, {tried}{trouble}."
        )
