"""One file per check on a training: what it proves, how it decides, and its cases."""
