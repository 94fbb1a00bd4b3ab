"""Running the arms: what to measure, how long, in which order, and what to probe beside it."""
