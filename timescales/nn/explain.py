"""Print how the engines run a cell: its traced equations, memory, the engine that runs it, and the generated code."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from timescales.nn import engine
from timescales.nn.accelerate import MINIMUM_SIZES, Accelerated, cell_of
from timescales.nn.cells.cell import Cell
from timescales.nn.drop_in import DropIn
from timescales.nn.engine import render
from timescales.nn.engine.cpu.emit_cpp import cell_code
from timescales.nn.engine.equations import Equations, of_cell
from timescales.nn.engine.hoisting import Hoisted, Reference
from timescales.nn.engine.recorder import NotTraceable
from timescales.nn.engine.render import Language, fill
from timescales.nn.engine.scalar import ARITHMETIC, COMPARISONS, UNARY
from timescales.nn.rnn import RNN

OPERATIONS = {op: f"{op}({{a}})" for op in (*UNARY, "mean")} | {
    op: f"{op}({{a}}, {{b}})" for op in ("pow", "max", "min")
}
OPERATIONS |= {op: f"{{a}} {sign} {{b}}" for op, sign in (ARITHMETIC | COMPARISONS).items()}
OPERATIONS |= {"and": "{a} and {b}", "or": "{a} or {b}", "neg": "-{a}", "select": "select({a}, {b}, {c})"}

# Operators of Python on tensors, by the names of torch's functions; an "r" in front means the operands' other order.
OPERATORS = {name: OPERATIONS[name] for name in ("neg", "add", "sub", "mul", "div")}
OPERATORS |= {"truediv": "{a} / {b}", "pow": "{a} ** {b}", "rsub": "{b} - {a}", "rdiv": "{b} / {a}"}
OPERATORS |= {"rtruediv": "{b} / {a}", "rpow": "{b} ** {a}"}


def explain(module: nn.Module, dt: bool = False) -> None:
    """Print how the engines run a cell.

    It prints the equations of a step as the engines traced them from `step`; what is computed once per sequence; the
    memory for backward; which engines run the cell on this machine, and why the others do not; and the generated C++
    code.

    Arguments:
        module: a cell, or a module such as LSTM or PLSTM, whose first layer is used; also torch's LSTM or GRU after
            `accelerate`.
        dt: whether the sequences have time intervals dt. Otherwise each step takes 1.

    Raises: ValueError if the module is none of these, or if dt is not True or False.
    """
    if not isinstance(dt, bool):
        raise ValueError(f"dt must be True or False, whether sequences have time intervals; not {type(dt).__name__}")
    if isinstance(module, Accelerated):
        cell: Any = cell_of(module.mode, module.hidden_size)
    else:
        cell = module.layers[0] if isinstance(module, RNN) else module
    if not isinstance(cell, Cell):
        raise ValueError(f"explain needs a layer or a cell of this package, such as timescales.LSTM; {_found(module)}")
    lines = _lines(cell, dt)
    if isinstance(module, Accelerated | DropIn):
        lines += [
            "",
            "torch's own kernel runs what the fused engine cannot: one step, dtypes other than float32,",
            "torch.autocast, tracers and exporters, projections; and on a GPU what cuDNN can run",
        ]
    if isinstance(module, Accelerated):
        lines += [
            "after timescales.accelerate it also runs small calls on a CPU, where it is faster. The engine runs calls",
            "with at least so many steps, sequences and units; first with gradients, then without:",
        ]
        for name, sizes in MINIMUM_SIZES.items():
            training, evaluation = (", ".join(map(str, each)) for each in sizes)
            lines.append(f"    {name}: {training}; {evaluation}")
    print("\n".join(lines))


def _found(module: nn.Module) -> str:
    """Return what was given instead of a layer, and the name of the layer inside it if there is one."""
    kind = type(module)
    found = f"not torch.nn.{kind.__name__}" if getattr(nn, kind.__name__, None) is kind else f"not {kind.__name__}"
    parts = module.named_modules() if isinstance(module, nn.Module) else ()
    name = next((name for name, part in parts if isinstance(part, RNN)), None)
    return f"{found}: give it the layer inside, .{name}" if name else found


def _lines(cell: Cell, dt: bool) -> list[str]:
    lines = [str(cell), "" if dt else "Each step takes 1; dt=True shows it with time intervals dt.", ""]
    try:
        equations = of_cell(cell, dt)
    except NotTraceable as error:
        equations = None
        lines += [f"No kernel can be made of its step: {error}"]
    if equations is not None:
        lines += _equations(cell, equations)
        lines += ["", *_memory(cell, equations)]
    lines += ["", "Engines here, in float32, for engine=...", *_engines(cell, dt)]
    if equations is not None:
        lines += ["", "Generated code of a step and its gradients", *_indented(cell_code(equations).splitlines())]
    return lines


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _equations(cell: Cell, e: Equations) -> list[str]:
    names = {e.input("state", k): field for k, field in enumerate(e.fields)}
    names |= {e.input("noise", k): f"random{k + 1}" for k in range(e.noises)} | {e.input("dt"): "dt"}
    meanings = {}
    for b in e.blocks:
        name = {"x": "x_", "pre": "z_", "h": "h_"}[b.kind] + cell.gates[b.gate]
        names[b.node] = f"cumax({name})" if b.is_row else name
        meanings[b.kind] = {
            "x": "x_... the input's share of a gate's pre-activation: W_ih x and its bias",
            "pre": "z_... a gate's pre-activation: W_ih x + W_hh h and the biases",
            "h": "h_... the recurrent share of a gate's pre-activation: W_hh h, and its bias if there are two",
        }[b.kind]
    hoisted = _hoisted(e.hoisted)
    once = []
    for number, block in e.vectors:
        text = hoisted[e.hoisted.used[number]]
        name = text if text.isidentifier() else f"p{number + 1}"
        names[e.input("vector", number, block)] = name
        if name != text:
            once.append(f"{name} = {text}")
    language = Language(OPERATIONS, repr, temporary="a")
    lines = [
        "Equations of a step, for each unit",
        *_indented(render.equations(language, e.new, names, [f"{f}'" for f in e.fields])),
    ]
    lines += ["where", *_indented(meanings.values())]
    if once:
        lines += ["and, once per sequence, from the parameters", *_indented(dict.fromkeys(once))]
    return lines


def _hoisted(hoisted: Hoisted) -> dict[int, str]:
    """Return what is computed only from parameters, as text, by place."""
    texts = dict(hoisted.roots)
    operators: dict[int, str] = {}  # the operator of each result that has one, by place

    def text(value: Any) -> str:
        if isinstance(value, Reference):
            return texts[value.place]
        return "..." if isinstance(value, Tensor) else str(value)

    for call in hoisted.calls:
        name = getattr(call.function, "__name__", str(call.function)).strip("_")
        operands = [text(v) for v in call.args]
        if name in OPERATORS and not call.kwargs:
            inner = [operators.get(v.place, "") if isinstance(v, Reference) else "" for v in call.args]
            line = fill(OPERATORS[name], operands, inner)
            operators |= dict.fromkeys(call.places, "{a}")  # also a negated value needs parentheses, as in (-p) ** 2
        else:
            named = [f"{key}={text(v)}" for key, v in call.kwargs.items()]
            line = f"{name}({', '.join(operands + named)})"
        texts |= dict.fromkeys(call.places, line)
    return texts


def _memory(cell: Cell, e: Equations) -> list[str]:
    H = cell.hidden_size
    numbers = 0 if e.is_scan else sum(H // block.divisor for block in e.blocks)
    saved = [f"{numbers} pre-activations"] * (not e.is_scan) + [f"{H} of {field}" for field in e.fields[1:]]
    means = sum(len(stage) for part in e.means for stage in part)
    saved += [f"{means} means"] * (means > 0)
    total = numbers + H * (len(e.fields) - 1) + means
    recomputed = " (fused computes the pre-activations again)" if e.is_scan else ""
    found = ", ".join(saved) or "nothing but the output"
    return [f"Kept for backward, for each step and sequence: {found}; {4 * total:,} bytes{recomputed}"]


def _engines(cell: Cell, dt: bool) -> list[str]:
    weight = next(cell.parameters())
    x = weight.new_zeros(2, 1, cell.input_size)
    lines = []
    for name in engine.NAMES[1:]:
        try:
            engine.pick(name, cell, x, timed=dt)
        except ValueError as error:
            _, _, reason = str(error).partition(": ")
            lines.append(f"{name}: no, {reason}")
        else:
            if name == "compiled" and (found := engine.gpu.failure(cell, x.device)):
                lines.append(f"{name}: no, {found}")
                continue
            line = f"{name}: yes" + ", but on a CPU only to test it" * (name == "compiled" and not x.is_cuda)
            try:
                engine.pick(name, cell, x, timed=dt, stepwise=True)
            except ValueError:
                line += "; no call with reset= or states=True"
            lines.append(line)
    name, _ = engine.name_of_auto(cell, dt)  # the lines above already give the reasons
    lines.append(f"auto: takes {name}")
    return _indented(lines)
