"""What runs inside the user's training loop, and what it leaves behind."""
