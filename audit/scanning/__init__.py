"""From a source to a published run: listing, measuring, relating, judging, verifying."""
