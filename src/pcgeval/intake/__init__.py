"""Taking submissions in: what a stranger hands in is listed, checked, and only then filed."""
