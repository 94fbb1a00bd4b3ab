"""Import the search while processes read the files: it takes half a second, and there is time."""

from __future__ import annotations

from importlib import import_module
from threading import Thread


def start_preparation() -> Thread:
    """Start importing what a search needs; join the thread before that."""
    thread = Thread(
        target=import_module, args=("audit.neighbors.search",), name="prepare search", daemon=True
    )
    thread.start()
    return thread
