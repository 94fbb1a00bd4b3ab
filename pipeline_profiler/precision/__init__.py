"""Speed of real training steps in each precision, with the loader of the user attached."""
