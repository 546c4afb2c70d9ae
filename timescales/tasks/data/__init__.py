"""Data sets on disk: find them, or download them with their checksums."""
