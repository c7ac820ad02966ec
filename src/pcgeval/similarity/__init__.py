"""Stages classify and diversity: the similarity of a level's picture to its letter, and the diversity of a letter."""
