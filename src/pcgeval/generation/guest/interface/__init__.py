"""The competition's interface as a program sees it, whichever of its names it is imported by."""
