"""Stage simulate: the stability of a level by physics, and a picture of its end. It imports no classifier."""
