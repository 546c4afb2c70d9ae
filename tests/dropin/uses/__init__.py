"""How outsiders' code uses a recurrent layer: one function for each use, in the files of this folder.

`registry.USES` lists them all. tests/dropin/test_dropin.py runs each with every layer; scripts/pages.py writes the list
with its outcomes to docs/dropin.md.
"""

from uses import calls, derivatives, inputs, parallel, tools, weights

__all__ = ["calls", "derivatives", "inputs", "parallel", "tools", "weights"]
