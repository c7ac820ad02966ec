"""What becomes of a level when gravity is let loose on it: stability by physics, and the picture of what stands."""
