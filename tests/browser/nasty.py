"""A dataset whose names try to be HTML, Markdown and a formula."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from audit import scanning
from audit.records import Action
from audit.review.decisions import decide_samples
from audit.sources import open_source
from tests.conftest import picture

NAME = "<img src=x onerror=alert(1)>**bold** [x](javascript:alert(1)) $x^2$ :red[y].jpg"
LABEL = "<b>cat _em_ `x`"
NOTE = "<script>alert(1)</script> **note**"


def nasty_run(folder: Path) -> Path:
    """Scan it into `folder`/nasty, with a decision whose note is nasty too."""
    for split in ("train", "test"):
        for label in (LABEL, "dog"):
            (folder / "names" / split / label).mkdir(parents=True)
            for seed in range(3):
                path = folder / "names" / split / label / f"{seed}.jpg"
                Image.fromarray(picture(seed + 10 * (label == "dog"))).save(path)
    dark = folder / "names" / "train" / LABEL / NAME
    Image.fromarray(picture(50) // 12).save(dark)
    run = folder / "nasty"
    scanning.scan(open_source([str(folder / "names")]), run, jobs=1)
    decide_samples(run, [f"test/{LABEL}/0.jpg"], Action.DROP, note=NOTE)
    return run
