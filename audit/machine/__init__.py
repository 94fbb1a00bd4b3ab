"""Worker processes with limits on time and memory, and loops shared by threads."""
