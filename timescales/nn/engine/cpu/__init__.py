"""The fused engine, for CPUs: a cell's equations as C++, compiled into a loop over time (fused.py)."""
