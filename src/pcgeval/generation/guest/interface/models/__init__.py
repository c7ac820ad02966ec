"""What a program's trials are given and have to be."""
