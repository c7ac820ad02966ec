"""Offer the competition's interface under each of its names."""
