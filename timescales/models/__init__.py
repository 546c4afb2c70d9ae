"""Whole models: encoder, recurrent layers and readout, sized by a task; and models that are not made of cells."""

from timescales.models.baselines import TorchGRU, TorchLSTM, Transformer

__all__ = ["TorchGRU", "TorchLSTM", "Transformer"]
