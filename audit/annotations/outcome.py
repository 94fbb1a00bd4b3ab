"""What reading one group of annotation files came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ReadOutcome:
    """Counts of one group; `form` says what its four numbers are, such as `xywh px`."""

    form: str
    pictures: int = 0
    objects: int = 0
    not_read: str = ""
    complete: bool = True
    remark: str = ""
