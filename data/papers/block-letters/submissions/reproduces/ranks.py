"""Spearman's rank correlation; equal values share the mean of their ranks."""

from statistics import correlation


def ranks(values):
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def spearman(first, second):
    return correlation(ranks(first), ranks(second))
