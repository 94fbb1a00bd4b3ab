"""How long a check goes on: seconds of work, and a share of what the budget has left.

On a busy machine the clock counts what others do. Work is therefore the lesser of wall and CPU
time (threads that share the work would be counted twice by the latter), and the clock ends a check
only where the budget of all checks would not hold.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Patience:
    """Over after `work` seconds of this process, or `wall` seconds on the clock."""

    work: float
    wall: float
    began: tuple[float, float] = field(
        default_factory=lambda: (time.monotonic(), time.process_time())
    )

    @property
    def over(self) -> bool:
        """Whether to stop."""
        wall, busy = time.monotonic() - self.began[0], time.process_time() - self.began[1]
        return min(wall, busy) > self.work or wall > self.wall
