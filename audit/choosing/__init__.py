"""Selection of images to label or keep: coverage, uncertainty, rarity, and the expected gain."""
