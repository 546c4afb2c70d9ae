"""Analyse somebody else's LSTM language model: a file with a state_dict, read like a run.

Known names are those of torch.nn.LSTM (`rnn.weight_ih_l0`) and of AWD-LSTM, which has an LSTM for each layer and the
recurrent weights before their dropout (`rnns.0.module.weight_ih_l0`, `rnns.0.weight_hh_l0_raw`), with any prefix.
"""

import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from timescales import analysis, plotting
from timescales.analysis import timescale_law
from timescales.analysis.run import Trained
from timescales.analysis.study import Study
from timescales.config import Config, schema
from timescales.config.compose import WRONG_INPUT, Composer
from timescales.errors import ConfigError, dotted, one_line
from timescales.nn.inits import timescale_of_gate
from timescales.nn.rnn import TORCH_WEIGHTS
from timescales.runs.record import Record

# The analyses of a file: they need no weights from before training.
ANALYSES = ("timescale_law", "routing", "word_ablation")
NAME = re.compile(r"(?P<prefix>.*?)(?P<kind>weight_ih|weight_hh|bias_ih|bias_hh|weight_hr)_l(?P<layer>\d+)(?P<end>\w*)")
TITLE = "Time scale of each unit by its forget bias, -1 / ln sigmoid(bias): at zero input and state"


@dataclass(frozen=True)
class Weights:
    """The weights of an LSTM language model.

    layers: for each layer the tensors of TORCH_WEIGHTS, in torch's form and order of gates.
    embedding: (V, E), readout: weight (V, H) and bias (V,) or None; None if the file has none.
    """

    path: Path
    layers: list[dict[str, Tensor]]
    embedding: Tensor | None
    readout: tuple[Tensor, Tensor | None] | None

    @property
    def sizes(self) -> list[int]:
        """Return the number of units of each layer."""
        return [layer["weight_hh"].shape[1] for layer in self.layers]

    @property
    def input_size(self) -> int:
        """Return the number of inputs of the first layer."""
        return self.layers[0]["weight_ih"].shape[1]


class OfFile(Trained):
    """A model with the weights of a file, and a task. `initial` is the same model, since there is no other."""

    @property
    def title(self) -> str:
        """Return the file and the task, for the titles of figures."""
        return f"{self.directory.name}, {self.config['task']['name']}"


def study(weights: Weights, settings: Sequence[str], name: str = "timescale_law") -> Study:
    """Study weights on the text that settings name (`task=ptb_word`). Without settings, study only their biases.

    name: one of ANALYSES. Raises ConfigError for weights and settings that do not fit.
    """
    if not settings:
        if name != "timescale_law":
            raise ConfigError(f"--only={name} needs a text: give a task, such as task=ptb_word")
        return from_biases(weights)
    if name == "routing" and weights.readout is None:
        raise ConfigError(f"--only={name} needs the readout, and {weights.path} has none")
    run, remarks = on_task(weights, settings)
    found = analysis.study_run(run, name)
    return replace(found, notes=[*found.notes, *remarks])


def read(path: Path) -> Weights:
    """Read the weights in a file. Only tensors are read; no code is run.

    Raises ConfigError for a file that is not an LSTM.
    """
    state = _state_dict(path)
    places: dict[tuple[Any, ...], dict[str, Tensor]] = {}
    for name, tensor in state.items():
        match = NAME.fullmatch(name)
        if match is None:
            continue
        if match["end"] not in ("", "_raw") or match["kind"] == "weight_hr":
            raise ConfigError(f"{path}: {name}: only LSTMs in one direction, without a projection, can be analysed")
        prefix = re.sub(r"(^|\.)module\.$", r"\1", match["prefix"])
        # Numbers sort as numbers: rnns.2 comes before rnns.10.
        natural = ((int(part), "") if part.isdigit() else (-1, part) for part in prefix.split("."))
        place = places.setdefault((*natural, int(match["layer"])), {})
        if match["end"] or match["kind"] not in place:  # AWD-LSTM's raw weights go before those without some
            place[match["kind"]] = tensor.float()
    if not places:
        first = ", ".join([*state][:3])
        raise ConfigError(f"{path} has no LSTM: no tensor of it is named like weight_ih_l0 (first: {first})")
    layers = [_layer(path, places[place]) for place in sorted(places)]
    for k in range(1, len(layers)):
        if layers[k]["weight_ih"].shape[1] != layers[k - 1]["weight_hh"].shape[1]:
            raise ConfigError(f"{path}: its LSTM layers do not fit together: layer {k + 1} reads another size")
    matrices = {name: t.float() for name, t in state.items() if t.dim() == 2 and not NAME.fullmatch(name)}
    embedding = _named(matrices, layers[0]["weight_ih"].shape[1], "enc", "emb", "wte", "lookup")
    others = {name: matrix for name, matrix in matrices.items() if name != embedding}
    readout = _named(others, layers[-1]["weight_hh"].shape[1], "dec", "out", "proj", "softmax", "head", "linear")
    bias = state.get(re.sub(r"weight$", "bias", readout or ""))
    found = None if readout is None else (matrices[readout], None if bias is None else bias.float())
    return Weights(path, layers, None if embedding is None else matrices[embedding], found)


def _state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name; for a checkpoint those of its model."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"--weights={path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file may raise nearly any exception
        if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
            fix = "load it where it was trained, and torch.save(model.state_dict(), FILE)"
            raise ConfigError(f"{path} has more than tensors, such as a whole model: {fix}") from error
        raise ConfigError(f"{path} cannot be read as a file of torch.save: is it damaged?") from error
    nested = ("state_dict", "model_state_dict", "model")  # where a checkpoint has its state_dict
    while isinstance(content, Mapping) and (inner := next((content[key] for key in nested if key in content), None)):
        content = inner
    tensors = (
        {str(name): t for name, t in content.items() if isinstance(t, Tensor)} if isinstance(content, Mapping) else {}
    )
    if not tensors:
        raise ConfigError(f"{path} has no state_dict: torch.save(model.state_dict(), FILE) writes one")
    return tensors


def _layer(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the checked tensors of one layer; missing biases are zeros."""
    if not {"weight_ih", "weight_hh"} <= tensors.keys():
        raise ConfigError(f"{path}: a layer has only {', '.join(tensors)}: weight_ih and weight_hh are needed")
    rows, units = tensors["weight_hh"].shape
    if rows != 4 * units:
        kind = {3: "a GRU", 1: "a plain RNN"}.get(rows // units, "no LSTM")
        raise ConfigError(f"{path} is {kind}: the analyses of a file are for LSTMs, whose weight_hh is (4 H, H)")
    zeros = torch.zeros(rows)
    return {name: tensors.get(name, zeros) for name in TORCH_WEIGHTS}


def _named(matrices: Mapping[str, Tensor], width: int, *words: str) -> str | None:
    """Return the name of the matrix (V, width) that has one of the words in its name, the earliest word first."""
    fits = [name for name, matrix in matrices.items() if name.endswith("weight") and matrix.shape[1] == width]
    return next((name for word in words for name in fits if word in name.lower()), None)


def from_biases(weights: Weights) -> Study:
    """Study the forget biases, b_ih + b_hh. On a text, gates also depend on the input and on h.

    Rows: layer, unit, timescale (steps). Values: those of `timescale_law.fit`, of all layers.
    """
    biases = [(layer["bias_ih"] + layer["bias_hh"]).chunk(4)[1] for layer in weights.layers]  # torch's second gate
    layers = [timescale_of_gate(bias.double().sigmoid()) for bias in biases]
    rows = [
        {"layer": k, "unit": unit, "timescale": time}
        for k, layer in enumerate(layers, 1)
        for unit, time in enumerate(layer.tolist())
    ]
    note = "only from the biases; to include what units read in a text, give a task, such as task=ptb_word"
    title = f"{TITLE}\n{weights.path.name}"
    return Study(title, rows, timescale_law.fit(torch.cat(layers)), lambda figure: _draw(figure, layers), (note,))


def _draw(figure: Any, layers: Sequence[Tensor]) -> None:
    """Draw time scales by rank, a line for each layer."""
    (ax,) = plotting.panels(figure)
    for (k, layer), shade in zip(enumerate(layers, 1), plotting.shades(len(layers)), strict=True):
        plotting.by_rank(ax, layer.tolist(), color=shade, lw=1.8, label=f"layer {k}, {len(layer):,} units")
    ax.set(yscale="log", xlabel="share of units with a longer time scale", ylabel="time scale (steps)")
    plotting.small_legend(ax)


def on_task(weights: Weights, settings: Sequence[str]) -> tuple[OfFile, list[str]]:
    """Make a model with these weights, on the task that settings name (`task=ptb_word`). Return it with remarks.

    A remark says if the model does worse than chance: then its words have other numbers than the task's. The numbering
    of torch's and AWD-LSTM's examples is the same: the order in which words first occur. Raises ConfigError.
    """
    config = _config(weights, settings)
    from timescales.training import build

    model, task, _ = build.build(config)
    spec, path, name = task.spec, weights.path, config["task"]["name"]
    if spec.width != weights.input_size:
        raise ConfigError(f"{path} reads {weights.input_size} inputs a step, and task={name} gives {spec.width}")
    wanted = {f"rnn.{part}_l{k}": t for k, layer in enumerate(weights.layers) for part, t in layer.items()}
    if isinstance(spec.embedding, int):
        assert weights.embedding is not None, "checked when the configuration was made"
        wanted["vectors"] = weights.embedding
    if weights.readout is not None:
        weight, bias = weights.readout
        wanted |= {"readout.weight": weight, "readout.bias": torch.zeros(len(weight)) if bias is None else bias}
    own = model.state_dict()
    for key, tensor in wanted.items():
        if own[key].shape != tensor.shape:
            what = "embedding" if key == "vectors" else key
            sizes = f"of {tuple(tensor.shape)}, and task={name} needs {tuple(own[key].shape)}"
            raise ConfigError(f"{path}: its {what} is {sizes}: choose its training text, by task or data_root")
    model.load_state_dict(own | wanted)
    found = Record(id="", status="a file of weights", config=config, seed=config["seed"])
    run = OfFile(path, found, model.eval(), model, task)
    return run, [] if weights.readout is None else _remarks(run)


def _config(weights: Weights, settings: Sequence[str]) -> Config:
    """Compose the configuration of an LSTM of the file's sizes on a task."""
    if any(re.match(r"[+~]*model\b", word) for word in settings):
        raise ConfigError("--weights: the model is in the file: leave out model settings")
    try:
        composer = Composer()
        sizes = [f"model.hidden_size={weights.sizes}", f"model.num_layers={len(weights.sizes)}"]
        overrides = [*settings, "model=lstm", *sizes]
        known = dict(dotted(composer.of_files(overrides)))
        if "task.embedding" in known and weights.embedding is not None:
            overrides.append(f"task.embedding={weights.input_size}")
        if "task.tied" in known:
            vectors, readout = weights.embedding, weights.readout  # if the file lacks one of them, it may be tied
            overrides.append(f"task.tied={vectors is None or readout is None or readout[0].equal(vectors)}")
        config = schema.resolved(composer(overrides))
    except WRONG_INPUT as error:
        raise ConfigError(one_line(error)) from error
    if weights.embedding is None and config["task"].get("embedding") is not None:
        raise ConfigError(f"{weights.path} has no embedding: without it no text can be read as vectors of words")
    return config


@torch.no_grad()
def _remarks(run: OfFile) -> list[str]:
    """Check by the loss on the first 20 windows of the test text whether words have the task's numbers."""
    losses: list[float] = []
    state = None
    for _, batch in zip(range(20), run.task.batches("test"), strict=False):
        output = run.model(batch, state)
        state = output.state if run.task.spec.carried else None
        losses.append(float(run.task.loss(output.logits, batch)))
    loss, chance = sum(losses) / len(losses), run.task.chance()
    if loss < chance:
        return [f"loss on the first {len(losses)} windows of the test text: {loss:.2f} (at chance {chance:.2f})"]
    return [f"its loss, {loss:.2f}, is above that of chance, {chance:.2f}: are its words numbered in another way?"]
