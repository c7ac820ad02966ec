"""How much a level's picture looks like the letter, and how much the trials of a letter differ from each other."""
