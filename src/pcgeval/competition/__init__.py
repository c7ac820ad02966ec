"""What is being evaluated: the parameters, the folders and the submissions of a competition."""
