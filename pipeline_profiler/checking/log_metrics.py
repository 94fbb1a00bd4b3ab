"""What the name of a metric says, how noisy it is, and how it runs without its noise.

The noise is taken from neighbouring rows, so a curve that rises or falls has no part in it.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

LOSSES = ("loss", "error", "perplexity", "mse", "rmse", "mae", "nll", "wer", "cer", "fid")
SCORES = (
    *("acc", "accuracy", "f1", "auc", "auroc", "map", "iou", "miou", "dice", "precision"),
    *("recall", "bleu", "rouge", "top1", "top5", "r2", "psnr", "ssim", "score", "reward", "kappa"),
)
HELD_OUT = ("val", "test", "eval", "valid", "validation", "dev", "heldout")
WORD = re.compile(r"[a-z]+[0-9]*")
Values = NDArray[np.float64]


def name_words(name: str) -> set[str]:
    """'valAccuracy/top-1' -> {'val', 'accuracy', 'top', ...}, joined pairs too ('top1')."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    forms = (apart, name.lower(), re.sub(r"[-_@ ]", "", apart))  # mAP is one word, top-1 as well
    return {word for form in forms for word in WORD.findall(form)}


def better_is(name: str) -> int:
    """-1 where a lower value is better, 1 where a higher one is, 0 where the name does not tell."""
    words = name_words(name)
    if words & set(LOSSES) or any(word.endswith("loss") for word in words):
        return -1
    return 1 if words & set(SCORES) else 0


def is_held_out(name: str) -> bool:
    """Whether a metric is of data that are not trained on, by its name."""
    return any(word.startswith(part) for word in name_words(name) for part in HELD_OUT)


def noise_of(values: Values) -> float:
    """Standard deviation of the noise: second differences, in which a slope cancels.

    White noise of deviation 1 has second differences of variance 6. Their median size is used,
    so jumps do not count; 0.6745 is the median of |normal|.
    """
    if len(values) < 4:
        return float("nan")
    return float(np.median(np.abs(np.diff(values, 2))) / (0.6745 * np.sqrt(6)))


def smoothed(values: Values, share: float = 0.5) -> Values:
    """The curve without its noise: at each row a straight line through its neighbourhood.

    Tricube weights over `share` of the rows (Cleveland, 1979: LOWESS without its robust steps).
    """
    count = len(values)
    reach = max(3, min(count, round(share * count)))
    places = np.arange(count, dtype=float)
    distances = np.abs(places[:, None] - places[None, :])
    width = np.sort(distances, axis=1)[:, reach - 1 : reach] + 1e-9
    weights = np.clip(1 - (distances / width) ** 3, 0, None) ** 3
    total = weights.sum(axis=1)
    at = weights @ places / total
    mean = weights @ values / total
    spread = (weights * (places[None, :] - at[:, None]) ** 2).sum(axis=1)
    slope = (weights * (places[None, :] - at[:, None]) * values[None, :]).sum(axis=1)
    line: Values = mean + slope / np.maximum(spread, 1e-12) * (places - at)
    return line


def correlation_length(values: Values, curve: Values) -> float:
    """Rows that count as one: (1 + r) / (1 - r), r the correlation of neighbours around a curve."""
    rest = values - curve
    power = float((rest**2).sum())
    if power <= 0 or len(rest) < 4:
        return 1.0
    # taking a curve out makes r too small, by about 4 / n (Kendall, 1954)
    near = min(0.98, float((rest[1:] * rest[:-1]).sum()) / power + 4 / len(rest))
    return max(1.0, (1 + near) / (1 - near))


def error_of_mean(values: Values, rows: int) -> float:
    """Standard error of a mean of neighbouring rows, with their correlation."""
    curve = smoothed(values, share=0.4)
    spread = 1.4826 * float(np.median(np.abs(values - curve)))
    alike = min(float(rows), correlation_length(values, curve))
    return max(noise_of(values), spread) * float(np.sqrt(alike / rows))
