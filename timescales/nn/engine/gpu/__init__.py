"""The graph engine and the cuDNN engine, for GPUs, and which engine is fastest there (choice.py)."""
