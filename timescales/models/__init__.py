"""Whole models: encoder, recurrent layers and readout, with the sizes of a task; and baselines not made of cells."""

from timescales.models.baselines import TCN, DilatedRNN, TorchGRU, TorchLSTM, Transformer, TrellisNet

__all__ = ["TCN", "DilatedRNN", "TorchGRU", "TorchLSTM", "Transformer", "TrellisNet"]
