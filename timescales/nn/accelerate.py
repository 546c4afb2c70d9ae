"""Speed up torch's own LSTM and GRU layers inside an existing model, by this package's engine."""

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from timescales import torch_private
from timescales.nn import engine
from timescales.nn.cells.cell import Cell, Run, Weights
from timescales.nn.cells.gru import GRUCell
from timescales.nn.cells.lstm import LSTMCell
from timescales.nn.drop_in import DropIn, MinimumSizes, can_run
from timescales.nn.engine.kernel import tracing_reason
from timescales.nn.factory import made_on
from timescales.nn.forms import Form, run_layers
from timescales.nn.state import join, split

# The sizes from which this package's engine is faster on a CPU, with gradients and without. torch's LSTM has oneDNN
# unless packed sequences differ in length. Measured on one thread, 8 to 512 units, 1 to 256 sequences: from these sizes
# on the engine takes at most 1.05 of the time of oneDNN, and below them up to 3 times as long.
MINIMUM_SIZES = {
    "LSTM": (MinimumSizes(64, 16, 32), MinimumSizes(200, 64, 32)),
    "LSTM, packed sequences of one length": (MinimumSizes(64, 64, 32), MinimumSizes(200, 128, 32)),
    "GRU": (MinimumSizes(16), MinimumSizes(32)),
    "other packed sequences": (MinimumSizes(16), MinimumSizes(64, 4)),
}

Model = TypeVar("Model", bound=nn.Module)
log = logging.getLogger("timescales")


def accelerate(model: Model) -> Model:
    """Speed up the torch.nn.LSTM and torch.nn.GRU layers inside a model, on a CPU.

    The model is changed in place. Parameters, optimizer state, hooks and state_dict stay the same objects; only the
    class of each layer is replaced by a subclass that runs this package's compiled engine. Calls that the engine cannot
    run or would not speed up (on a GPU, short sequences, small batches and layers) still run in torch. Your own
    subclasses of LSTM and GRU are accelerated too, wherever their `forward` calls `super().forward`.

    Two things to know:
        - Do not change the output of an accelerated GRU in place before `backward()`; clone it first.
        - Save `model.state_dict()`, not the model: a file of `torch.save(model)` needs this package to load.

    Arguments:
        model: any torch.nn.Module. `restore(model)` undoes the change.

    Returns: the model. The logger "timescales" reports at level INFO how many layers were changed.
    """
    own = Accelerated, DropIn  # which are subclasses of torch's, too
    found = [m for m in model.modules() if isinstance(m, nn.LSTM | nn.GRU) and not isinstance(m, own)]
    for module in found:
        _change_class(module, _accelerated)
    log.info("accelerate: %d LSTM and GRU layers of %s run on our engine", len(found), type(model).__name__)
    return model


def restore(model: Model) -> Model:
    """Undo `accelerate`: give the layers their original class again.

    Returns: the model, which is changed in place.

    Raises: ValueError if something other than a parametrization has changed a layer's class since `accelerate`.
    """
    found = [module for module in model.modules() if isinstance(module, Accelerated)]
    for module in found:
        kind = _class_without_parametrizations(module)
        if "original_class" not in vars(kind):
            raise ValueError(f"the class of a layer was changed to {kind.__name__} after accelerate: undo this first")
    for module in found:
        _change_class(module, lambda kind: kind.original_class)
    return model


def _class_without_parametrizations(module: nn.Module) -> Any:
    """Return the class of a module without its parametrizations."""
    return type(module).__bases__[0] if parametrize.is_parametrized(module) else type(module)


def _change_class(module: nn.Module, change: Callable[[Any], Any]) -> None:
    """Change the class of a module below its parametrizations, so that these can still be removed."""
    changed = change(_class_without_parametrizations(module))
    if parametrize.is_parametrized(module):  # torch made a class for this module's parametrizations
        properties = {k: v for k, v in vars(type(module)).items() if k not in ("__dict__", "__weakref__")}
        changed = type(type(module).__name__, (changed,), properties)
    module.__class__ = changed


class Accelerated:
    """Base class of accelerated layers, placed before torch's class: `forward` runs the package's engine if it can."""

    original_class: ClassVar[Any]  # the layer's class before `accelerate`

    def forward(self: Any, input: Any, hx: Any = None) -> Any:  # torch's name
        """Run the layer. Arguments and results are torch's."""
        if torch.compiler.is_compiling() or tracing_reason() or torch_private.is_in_dual_level():
            return super().forward(input, hx)  # type: ignore[misc]
        cell = cell_of(self.mode, self.hidden_size)
        if not can_run(self, cell, input, hx, minimum_sizes(self, input)):
            return super().forward(input, hx)  # type: ignore[misc]
        form = Form(input, self.batch_first)
        x, steps = form.sequences(input)
        layers = [functools.partial(_run, cell, [getattr(self, name) for name in own]) for own in self._all_weights]
        states = [None] * len(layers)
        if hx is not None:
            states = [form.before(state) for state in split([cell] * len(layers), hx)]
        dropout = functools.partial(nn.functional.dropout, p=self.dropout, training=self.training)
        run = functools.partial(engine.run, "auto")
        output, after, _ = run_layers(layers, 1 + self.bidirectional, x, states, steps, run, dropout)
        return form.output(output), join([cell] * len(layers), [form.after(end) for end in after])

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Let copies and files name the original class, since the class of the layer is made at run time."""
        content: Any = super().__reduce_ex__(protocol)
        return _new, (self.original_class,), *content[2:]


torch_private.leave_to_python(Accelerated.forward)


def minimum_sizes(rnn: Any, x: Any) -> MinimumSizes:
    """Return the sizes from which this package's engine runs a call of torch's layer."""
    has_onednn = rnn.mode == "LSTM" and torch.backends.mkldnn.is_available()
    if isinstance(x, PackedSequence):
        one_length = bool(x.batch_sizes[0] == x.batch_sizes[-1])
        kind = "LSTM, packed sequences of one length" if one_length and has_onednn else "other packed sequences"
    else:
        kind = "LSTM" if has_onednn else "GRU"
    training, evaluation = MINIMUM_SIZES[kind]
    return training if torch.is_grad_enabled() else evaluation


def _run(cell: Cell, weights: list[Any], x: Tensor, state: Any, dt: Any, mask: Any, run: Run) -> Any:
    """Run a layer in one direction, as `Cell.forward`. weights: in torch's order, without biases if there are none."""
    before = cell.initial_state(x.shape[1]) if state is None else state
    ih, hh, bias_ih, bias_hh = (*weights, None, None)[:4]
    return run(cell, x, Weights(ih, hh, bias_ih, bias_hh), before, dt, mask)


@functools.cache
def cell_of(mode: str, hidden_size: int) -> Cell:
    """Return a cell with the equations of torch's layers of this mode. Its own weights, of one unit, are unused."""
    with torch.random.fork_rng(devices=[]), made_on("cpu", torch.float32):
        cell: Cell = {"LSTM": LSTMCell, "GRU": GRUCell}[mode](1, 1)
    cell.hidden_size = hidden_size
    return cell


ACCELERATED_CLASSES: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()  # by original class


def _accelerated(kind: Any) -> Any:
    """Return the accelerated subclass of torch's layer or of a subclass of it. It has the same name."""
    if (known := ACCELERATED_CLASSES.get(kind)) is not None:
        return known
    names = {key: getattr(kind, key) for key in ("__module__", "__qualname__", "__doc__")} | {"original_class": kind}
    own = nn.LSTM if issubclass(kind, nn.LSTM) else nn.GRU
    made = type(kind.__name__, (Accelerated, kind) if kind is own else (kind, _accelerated(own)), names)
    return ACCELERATED_CLASSES.setdefault(kind, made)


def _new(kind: type) -> Any:
    """Make an accelerated layer without content, which copy and pickle then fill."""
    made = _accelerated(kind)
    return made.__new__(made)
