"""From the command line to checked values and a run id. Imports no torch."""

from typing import Any

Config = dict[str, Any]  # a resolved configuration, as a record has it
