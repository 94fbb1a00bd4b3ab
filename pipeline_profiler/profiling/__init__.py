"""Where the time of a training goes: recorded, measured, diagnosed, watched in scripts."""
