"""The atlas of memory: what every cell remembers on one set of tests, and the card of a cell of one's own."""
