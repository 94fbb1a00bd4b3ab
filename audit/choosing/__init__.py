"""Which pictures next: the most different, the most doubtful, the rarest, and what they buy."""
