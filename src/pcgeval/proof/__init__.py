"""Prove a ranking: run it again from its inputs, publish it as one file, verify such a file, compare two rankings.

Only cli imports it.
"""
