"""The atlas of memory: what every cell remembers on one set of tests, and the card of a user's cell."""
