"""From the command line to checked values and a run id. Imports no torch."""
