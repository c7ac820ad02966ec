"""The ten letters as blocks on a grid: pairs (column, row), row 0 is the lowest."""

BITMAPS = {  # one hexadecimal number a row from the top; bit 16 is the leftmost column
    "A": "0E 11 11 1F 11 11 11",
    "C": "0E 11 10 10 10 11 0E",
    "F": "1F 10 10 1E 10 10 10",
    "I": "04 04 04 04 04 04 04",
    "J": "1F 02 02 02 02 12 0C",
    "L": "10 10 10 10 10 10 1F",
    "P": "1E 11 11 1E 10 10 10",
    "T": "1F 04 04 04 04 04 04",
    "U": "11 11 11 11 11 11 0E",
    "Y": "11 11 0A 04 04 04 04",
}
COLUMNS = 5


def blocks(letter):
    rows = [int(number, 16) for number in reversed(BITMAPS[letter].split())]
    return [(x, y) for y, row in enumerate(rows) for x in range(COLUMNS) if row & 16 >> x]


def on_plinth(letter):
    raised = [(x, y + 1) for x, y in blocks(letter)]
    return [(x, 0) for x in range(COLUMNS)] + raised


def base(cells):
    """Return the left and right edge of what touches the ground."""
    lowest = [x for x, y in cells if y == 0]
    return min(lowest), max(lowest) + 1
