"""Worker processes with limits on time and memory, and compiled functions."""
