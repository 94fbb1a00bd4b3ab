"""One line on the terminal while a training runs: wait share, samples a second, memory."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable

from pipeline_profiler.watching.loop import Loop

EVERY_S = 2.0


class LiveLine:
    """Writes the line over itself every two seconds."""

    def __init__(self, text: Callable[[], str]) -> None:
        """Start writing what `text` says now."""
        self._text = text
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name="profile-live-line")
        self._thread.start()

    def _loop(self) -> None:
        while not self._ended.wait(EVERY_S):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"\r{self._text()}\x1b[K")
                sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        self._ended.set()
        self._thread.join(timeout=1.0)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write("\r\x1b[K")


def live_text(main: Loop | None) -> str:
    """'watch: step 812 · wait 12 % · 512 samples/s · 1.2 GB', of the newest rows."""
    if main is None or not main.recorder.steps:
        return "watch: no step yet"
    steps, wait, loop = main.recorder.recent()
    parts = [f"watch: step {main.recorder.steps}"]
    if wait + loop and main.recorder.run.config.get("wait_told", True):
        parts.append(f"wait {wait / (wait + loop):.0%}")
    size = main.recorder.run.config.get("batch_size")
    if size and wait + loop:
        parts.append(f"{size * steps / (wait + loop) * 1e9:,.0f} samples/s")
    return " · ".join([*parts, _memory()])


def _memory() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"{torch.cuda.memory_allocated() / 1e9:.1f} GB on the GPU"
    import resource

    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB"
