"""What work runs on: processes with limits on time and memory, and compiled functions."""
