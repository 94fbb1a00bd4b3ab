"""One file per check on a loader: what it proves, how it decides, and its cases."""
