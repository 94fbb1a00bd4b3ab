"""One run against another, against expectations, and against what its pictures need."""
