"""Running the arms: what to measure, how long, in which order, and what to probe beside it.

In: a function that makes a loader, a step, and the caller's options. Out: a `Session` with its
plan, runs and probes, without a verdict. Cost: the time budget, 30 seconds to 2 minutes of
training steps; what ends it early leaves a partial session that can be read like any other.
"""
