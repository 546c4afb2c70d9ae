"""Data sets: find them on disk or download them, check that they are complete, and read them."""
