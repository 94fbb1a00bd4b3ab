"""One file per check on a log of metrics: what it proves, how it decides, and its cases."""
