"""Dividing the room of a prompt among its parts."""

from collections.abc import Sequence


def allotted(room: int, needs: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return how many tokens each part gets: all it needs, or its share by weight of what the others leave.

    Args:
        room: Tokens for all parts together; below 0 counts as 0.
        needs: Tokens of each part as it is.
        weights: Above 0.
    """
    allotments = [0] * len(needs)
    left, weight_left = max(room, 0), sum(weights)
    # who needs least for its weight is served first, so that what it leaves reaches the others
    for place in sorted(range(len(needs)), key=lambda place: needs[place] / weights[place]):
        share = int(left * weights[place] / weight_left) if weight_left > 0 else 0
        allotments[place] = min(needs[place], share, left)
        left -= allotments[place]
        weight_left -= weights[place]
    return allotments
