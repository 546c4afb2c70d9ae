"""Whole models: encoder, recurrent layers and readout, sized by a task; and models that are not made of cells."""

from timescales.models.baselines import TCN, DilatedRNN, TorchGRU, TorchLSTM, Transformer, TrellisNet

__all__ = ["TCN", "DilatedRNN", "TorchGRU", "TorchLSTM", "Transformer", "TrellisNet"]
