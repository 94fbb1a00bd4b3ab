"""What the page of a check must be, in both programs."""

import re
from collections.abc import Iterator, Sequence

from dataset_preflight.foundation.check_contract import Documented, page_text

SHORTEST, WIDEST = 30, 100  # characters of a section, and of its lines


def page_sections(check: Documented) -> dict[str, str]:
    """Return the sections of a check's page by title, in their order."""
    parts = re.split(r"^## (.+)$", page_text(check), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


def page_faults(check: Documented, sections: Sequence[str]) -> Iterator[str]:
    """Say what is wrong with a check's page: its sections, its first sentence, its lines."""
    found = page_sections(check)
    if tuple(title for title in found if title != "References") != tuple(sections):
        yield f"the sections are {', '.join(found)}"
    first = page_text(check).split("\n\n")[0]
    if not first.endswith(".") or "##" in first:
        yield "it does not begin with a sentence"
    for title, text in found.items():
        if len(text) < SHORTEST:
            yield f"{title} says too little"
        if not text.endswith((".", "?", ")", '"')):
            yield f"{title} ends without a full stop"
        if max(map(len, text.splitlines()), default=0) > WIDEST:
            yield f"{title} has lines of more than {WIDEST} characters"
