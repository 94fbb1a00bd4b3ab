"""One small function per cause: evidence in, a `Diagnosis` or None out.

A rule decides by the share of the step that its cause is worth, measured by an arm or predicted by
a replay without the cause. Rules never import each other's decisions, never change the evidence,
and may raise: the guard reports it and asks the next one. Cost: some replays, milliseconds each.
"""
