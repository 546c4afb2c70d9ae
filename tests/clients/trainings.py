"""Small trainings of other packages' models, through their public interfaces: the gradients, and the time of a step.

`python trainings.py NAME` trains the model twice, with torch's layers and after `timescales.accelerate`, step by step
in turns on one thread, and prints a line of JSON: the seconds of a step with either (median), how far the gradients of
the first step differ, and how many of its calls of an LSTM or GRU our engine took. A training is a function that makes
a model and its loss.
"""

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import timescales
from timescales.nn import accelerate as accelerated

Made = tuple[nn.Module, Callable[[nn.Module], Tensor]]  # a model, and its loss


def torchrl() -> Made:
    """The LSTM of recurrent agents, over rollouts in which episodes begin: 32 environments, 64 steps, 128 units."""
    from tensordict import TensorDict
    from torchrl.modules import LSTMModule, set_recurrent_mode

    module = LSTMModule(16, 128, in_key="observation", out_key="features")
    begin = torch.zeros(32, 64, 1, dtype=torch.bool)
    begin[:, 0] = True
    shape = (32, 64, 1, 128)
    values = {"recurrent_state_h": torch.zeros(shape), "recurrent_state_c": torch.zeros(shape)}
    given = TensorDict(values | {"observation": torch.randn(32, 64, 16), "is_init": begin}, [32, 64])

    def loss(model: nn.Module) -> Tensor:
        with set_recurrent_mode(True):
            return model(given.clone())["features"].square().mean()

    return module, loss


def darts() -> Made:
    """RNNModel, an LSTM of 64 units over windows of 96 steps of a sine, 32 at a time."""
    import numpy as np
    from darts import TimeSeries
    from darts.models import RNNModel

    series = TimeSeries.from_values(np.sin(np.arange(300, dtype=np.float32) / 7))
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
    model = RNNModel(model="LSTM", hidden_dim=64, input_chunk_length=95, training_length=96, n_epochs=0, batch_size=32)
    model.trainer_params.update(quiet)
    model.fit(series)
    x = torch.from_numpy(np.stack([series.values()[k : k + 97] for k in range(32)]))

    def loss(module: nn.Module) -> Tensor:
        output, _ = module((x[:, :-1], None, None))
        return (output.flatten(2)[..., 0] - x[:, 1:, 0]).square().mean()

    return model.model, loss


def neuralhydrology() -> Made:
    """CudaLSTM, the model of its tutorials: 256 sequences of 365 days, 64 units."""
    from neuralhydrology.modelzoo.cudalstm import CudaLSTM
    from neuralhydrology.utils.config import Config

    names = ["a", "b", "c", "d", "e"]
    config = {"model": "cudalstm", "head": "regression", "hidden_size": 64, "initial_forget_bias": 3}
    config |= {"output_dropout": 0.0, "dynamic_inputs": names, "target_variables": ["q"], "device": "cpu"}
    config |= {"predict_last_n": 1, "seq_length": 365, "use_basin_id_encoding": False}
    model = CudaLSTM(Config(config))
    given = {name: torch.randn(256, 365, 1) for name in names}

    def loss(module: nn.Module) -> Tensor:
        return module({"x_d": given})["y_hat"][:, -1].square().mean()

    return model, loss


def pytorch_forecasting() -> Made:
    """DeepAR over its synthetic series: windows of 60 steps, 64 at a time, 64 units."""
    from pytorch_forecasting import DeepAR, TimeSeriesDataSet
    from pytorch_forecasting.data.examples import generate_ar_data

    table = generate_ar_data(seasonality=10.0, timesteps=120, n_series=64, seed=1)
    table["series"] = table["series"].astype(str)
    windows = TimeSeriesDataSet(
        table, "time_idx", "value", ["series"], max_encoder_length=60, max_prediction_length=20,
        time_varying_unknown_reals=["value"],
    )  # fmt: skip
    model = DeepAR.from_dataset(windows, hidden_size=64, rnn_layers=2, dropout=0.0)
    x, y = next(iter(windows.to_dataloader(train=True, batch_size=64)))

    def loss(module: nn.Module) -> Tensor:
        return module.loss(module(x)["prediction"], y)

    return model, loss


def flair() -> Made:
    """A tagger of words: bidirectional LSTM of 128 units, packed sequences, a conditional random field."""
    from flair.data import Dictionary, Sentence
    from flair.embeddings import OneHotEmbeddings
    from flair.models import SequenceTagger

    words = ["the", "a", "dog", "cat", "sees", "likes", "red", "small", "house", "tree"]
    sentences = [Sentence([words[(i * i + k) % 10] for k in range(4 + 3 * i % 17)]) for i in range(32)]
    tags = Dictionary(add_unk=False)
    for tag in ("odd", "even"):
        tags.add_item(tag)
    for sentence in sentences:
        for k, token in enumerate(sentence):
            token.set_label("pos", "odd" if k % 2 else "even")
    known = Dictionary()
    for word in words:
        known.add_item(word)
    tagger = SequenceTagger(
        OneHotEmbeddings(known, embedding_length=64), tags, "pos", hidden_size=128, use_rnn=True, dropout=0.0,
        word_dropout=0.0, locked_dropout=0.0,
    )  # fmt: skip

    def loss(module: nn.Module) -> Tensor:
        for sentence in sentences:
            sentence.clear_embeddings()
        found, count = module.forward_loss(sentences)
        return found / count

    return tagger, loss


def sb3_contrib() -> Made:
    """RecurrentPPO's policy over a rollout without a new episode: 4 environments, 128 steps, LSTMs of 128 units."""
    return recurrent_ppo(torch.zeros(4 * 128))


def sb3_contrib_episodes() -> Made:
    """The same, and episodes begin within: the policy then calls its LSTMs once a step, which torch's kernel takes."""
    begin = torch.zeros(4 * 128)
    begin[64::128] = 1.0
    return recurrent_ppo(begin)


def recurrent_ppo(begin: Tensor) -> Made:
    """RecurrentPPO's policy. begin: 1 where an episode begins."""
    import gymnasium
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    space = gymnasium.spaces.Box(-1.0, 1.0, (8,))
    policy = RecurrentActorCriticPolicy(space, gymnasium.spaces.Discrete(2), lambda _: 3e-4, lstm_hidden_size=128)
    observations, actions = torch.randn(4 * 128, 8), torch.randint(2, (4 * 128,))
    zero = torch.zeros(1, 4, 128)

    def loss(module: nn.Module) -> Tensor:
        values, log_p, _ = module.evaluate_actions(observations, actions, RNNStates((zero, zero), (zero, zero)), begin)
        return values.square().mean() - log_p.mean()

    return policy, loss


def speechbrain() -> Made:
    """Its LSTM of 64 units, bidirectional, over 16 padded sequences of up to 100 steps."""
    sys.modules["torchaudio"] = mock.MagicMock()  # this reads no sound, and torchaudio needs a torch that knows CUDA
    from speechbrain.nnet.RNN import LSTM

    model = LSTM(hidden_size=64, input_shape=(16, 100, 40), bidirectional=True)
    x, lengths = torch.randn(16, 100, 40), torch.linspace(0.4, 1.0, 16)

    def loss(module: nn.Module) -> Tensor:
        return module(x, lengths=lengths)[0].square().mean()

    return model, loss


def measured(name: str, steps: int = 12) -> dict[str, Any]:
    """Train with torch's layers and accelerated, in turns."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss = globals()[name]()
    pair = [model, timescales.accelerate(copy.deepcopy(model))]
    for one in pair:
        one.train()
    optimizers = [torch.optim.SGD(one.parameters(), 0.01) for one in pair]
    seconds: list[list[float]] = [[], []]
    gradients: list[Tensor] = []  # of the first step
    taken: list[bool] = []
    can_run = accelerated.can_run
    accelerated.can_run = lambda *call: taken.append(can_run(*call)) or taken[-1]  # type: ignore[func-returns-value]
    for step in range(steps):
        for k in (0, 1):
            torch.manual_seed(step)
            start = time.perf_counter()
            optimizers[k].zero_grad()
            value = loss(pair[k])
            value.backward()
            optimizers[k].step()
            seconds[k].append(time.perf_counter() - start)
            if not step:
                gradients.append(torch.cat([p.grad.flatten() for p in pair[k].parameters() if p.grad is not None]))
        if not step:
            calls = f"{sum(taken)} of {len(taken)}"
    difference = ((gradients[0] - gradients[1]).norm() / gradients[0].norm()).item()
    torchs, ours = (statistics.median(part[2:]) for part in seconds)
    found = {"torch": torchs, "accelerated": ours, "difference": difference, "calls": calls}
    return found | {"what": globals()[name].__doc__}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1])))
