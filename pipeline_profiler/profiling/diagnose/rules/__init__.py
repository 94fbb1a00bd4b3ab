"""One small function per cause: evidence in, a `Diagnosis` or None out."""
