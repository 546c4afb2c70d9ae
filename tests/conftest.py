import torch

# Tensors here are tiny: a second thread costs three times the time of the whole suite.
torch.set_num_threads(1)
