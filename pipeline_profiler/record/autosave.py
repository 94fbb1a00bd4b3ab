"""Saves in a thread while the loop goes on, so that no interrupted run is lost.

A save takes some tens of milliseconds beside the training. The next one comes after a minute, or
after 300 times what this one took, so saving stays below a third of a percent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SAVED_EVERY_S = 60.0
REST = 300.0
NAME = "profile-autosave"


class Autosave:
    """Calls `save` every so often until `end`."""

    def __init__(self, save: Callable[[], object], every_s: float = SAVED_EVERY_S) -> None:
        """Start the thread; the first save comes after `every_s` seconds."""
        self._save, self._every_s = save, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name=NAME)
        self._thread.start()

    def _loop(self) -> None:
        rest = self._every_s
        while not self._ended.wait(rest):
            began = time.perf_counter()
            self._save()
            rest = max(self._every_s, REST * (time.perf_counter() - began))

    def end(self) -> None:
        """No save begins after this one that may be going on."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=10.0)
