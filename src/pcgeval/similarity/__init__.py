"""Stages classify and diversity: the similarity of a picture to its letter, and the diversity of a letter.

It simulates nothing.
"""
