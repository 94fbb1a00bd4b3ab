"""What a pack or a store says of one picture that it cannot give."""

from __future__ import annotations


class ReadingError(Exception):
    """A picture whose bytes cannot be had: `kind` is an error kind of the table `features`."""

    def __init__(self, kind: str, text: str) -> None:
        """Keep the kind beside the text."""
        super().__init__(text)
        self.kind = kind
