"""Every model and every task, composed as `train.py` would with the recipes of the papers, takes two training steps.

Layers have the sizes of the configuration; the data are small files in the formats of the real ones. Batches and some
lengths are small, and the word tasks, whose model would have 24 million weights, have smaller layers.
"""

import itertools

import pytest
import torch
from configs import config
from synthetic import SMALL as SYNTHETIC
from synthetic import sizes
from trainings import two_steps

from timescales import paths
from timescales.config import folders, schema
from timescales.errors import ConfigError
from timescales.nn import registry
from timescales.nn.cells import EURNNCell, ExpRNNCell, GORUCell, URNNCell
from timescales.training import build

MODELS, TASKS = [model.name for model in registry.MODELS], folders.choices("task")
OF_GU = [task for task in TASKS if list(paths.conf().glob(f"recipe/gu/{task}*.yaml"))]  # composed with paper=gu, too
WORDS = ("ptb_word", "wt2")
# They have no recurrent weights that could be dropped.
WITHOUT_MATRIX = [m.name for m in registry.MODELS if m.family in (registry.SCAN, registry.OTHER) or m.name == "grud"]
PARTIAL = ("scifar", "imdb", "ptb_char", "text8", *WORDS, "wt103")  # small files are taken for a part of the real ones
SMALL = {
    "adding": ["task.T=100"],
    "linear_functional": ["task.T=100"],
    "n_parity": ["task.N=10", "task.bits=fair"],  # a batch of two short sequences may have no ones
    "delayed_match": ["task.delay=20"],
    "program": ["task.length=3", "task.nesting=2", "model.hidden_size=16"],
    "selective_copy": ["task.T=100"],
    "rescaling": ["task.unit=1"],  # the factor of a signed minGRU begins at 0: over a long silence its gradient is zero
    "imdb": ["task.steps=40"],  # over 400 steps, nearly all padding here, the gradient of an LSTM's input becomes zero
    "text8": ["task.length=100"],
    "text": SYNTHETIC["text"],
    "series": SYNTHETIC["series"],
    "wt103": ["task.length=12", "task.embedding=8", "task.cutoffs=[10]", "model.hidden_size=16"],
    **{task: ["task.length=12", "task.embedding=8", "model.hidden_size=10", "model.num_layers=3"] for task in WORDS},
}
MODRELU = (EURNNCell, ExpRNNCell, GORUCell, URNNCell)
GATES = {"i": "input", "f": "forget", "g": "cell", "o": "output"}


def composed(task, model, corpora, *more):
    """The configuration of a pair, with little data."""
    small = ["task.batch_size=2", *sizes(task, 8), *SMALL.get(task, [])]
    small += ["task.allow_partial=true"] if task in PARTIAL else []
    return schema.resolved(config(f"task={task}", f"model={model}", f"data_root={corpora}", *small, *more))


def frozen_gates(settings):
    """For each layer, the gates whose biases a model's configuration does not train."""
    layers = settings["num_layers"]
    if "freeze_gates" not in settings:
        return [set(settings.get("frozen", []))] * layers
    gates = {GATES[letter] for letter in settings["freeze_gates"]}
    return [gates] if layers == 1 else [gates, gates, set()]  # the last of the three layers of MTS is an LSTM's


def biases_of(cell):
    """The bias of each gate; that of a modReLU is a parameter like all others."""
    gates = [gate for gate in cell.gates if gate != "cell" or not isinstance(cell, MODRELU)]
    return {gate: cell.bias_total(gate).detach().clone() for gate in gates}


def check(plain):
    """Take two steps: everything moves but what the configuration freezes. Returns the model."""
    network, task, optimizer = build.build(plain)
    biases = [biases_of(cell) for cell in network.rnn.layers]
    still = two_steps(network, task, optimizer, plain)
    for cell, bias, frozen in zip(network.rnn.layers, biases, frozen_gates(plain["model"]), strict=True):
        assert {gate for gate, value in biases_of(cell).items() if torch.equal(value, bias[gate])} == frozen
    names = dict(network.named_parameters())
    is_frozen = plain["task"].get("recurrent") == "frozen"
    no_gradient = {name for name in names if is_frozen and name.rpartition(".")[2].startswith("weight_hh")}
    assert {n for n, p in names.items() if not p.requires_grad} == no_gradient
    # Frozen biases are kept beside the parameters: if those of all gates are, nothing reads the parameters.
    all_frozen = [k for k, gates in enumerate(frozen_gates(plain["model"])) if gates == set(GATES.values())]
    assert still == no_gradient | {f"rnn.{bias}_l{k}" for k in all_frozen for bias in ("bias_ih", "bias_hh")}
    return network


# Every model once, with the tasks in turn, and what is special to a pair: words with a model whose matrix is dropped.
PLACES = [*TASKS, *(f"{task} paper=gu" for task in OF_GU)]
PAIRS = [*zip(itertools.cycle(PLACES), MODELS, strict=False), ("ptb_word", "mts"), ("wt2", "plstm"), ("wt2", "mingru")]


@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_every_pair_takes_two_steps(task, model, corpora):
    task, *more = task.split()
    if task in WORDS and model in WITHOUT_MATRIX:
        with pytest.raises(ConfigError, match=r"task\.weight_drop=0"):
            check(composed(task, model, corpora))
        more = ["task.weight_drop=0"]
    plain = composed(task, model, corpora, *more)
    network = check(plain)
    size, layers = plain["model"]["hidden_size"], plain["model"]["num_layers"]
    expected = size if isinstance(size, list) else [size] * layers
    if task in WORDS:  # tied weights
        expected = [*expected[:-1], plain["task"]["embedding"]]
    assert [cell.hidden_size for cell in network.rnn.layers] == expected


FROZEN = [
    *(("wt2", model, "task.recurrent=frozen") for model in ("lstm", "gated", "gru", "plstm")),
    ("ptb_word", "mts", "model.freeze_gates=if"),
    ("copy", "mts", "model.freeze_gates=ifgo"),
    ("copy", "lstm", "model.frozen=[input,forget]"),
    ("copy", "chrono", "model.frozen=[forget]"),
    ("copy", "ur", "model.frozen=[forget]"),
]


@pytest.mark.parametrize(("task", "model", "setting"), FROZEN)
def test_what_a_setting_freezes_does_not_move(task, model, setting, corpora):
    plain = composed(task, model, corpora, setting)
    assert plain["task"].get("recurrent") == "frozen" or any(frozen_gates(plain["model"]))
    check(plain)


@pytest.mark.parametrize(
    ("model", "setting", "name"), [("plstm", "power=0.5", "power"), ("gated", "train_bias=false", "gate_bias")]
)
def test_a_fixed_vector_is_no_parameter(model, setting, name, corpora):
    networks = [check(composed("copy", model, corpora, *more)) for more in ([], [f"model.{setting}"])]
    learned, fixed = ({name for name, _ in network.named_parameters()} for network in networks)
    assert learned - fixed == {f"rnn.layers.0.{name}"}
