"""What a participant does before handing in: a few trials of an own submission, through the competition's own steps."""
