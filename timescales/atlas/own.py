"""Make the layers of a user's cell, which the command line names as a file and a class, or a class in a module."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from timescales.errors import ConfigError, nearest
from timescales.nn.cells.cell import Cell
from timescales.nn.rnn import RNN


class OwnLayers(RNN):
    """The layers of a cell, or of a layer's class, which `source` names.

    Arguments:
        input_size, hidden_size, num_layers: as `CellRNN`.
        source: "mine.py:MyCell", or "package.module.MyCell".
        arguments: those of the class besides the sizes.
        digest: of the file. It is not compared; it is an argument so that another version of the cell makes other runs.
        dropout, engine: as `RNN`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        source: str,
        arguments: dict[str, Any] | None = None,
        digest: str = "",
        dropout: float = 0.0,
        engine: str = "auto",
    ) -> None:
        made: Any = load(source)
        given = arguments or {}
        try:
            if issubclass(made, Cell):
                sizes = [(hidden_size if k else input_size, hidden_size) for k in range(num_layers)]
                cells = [made(*size, **given) for size in sizes]
            else:
                cells = list(made(input_size, hidden_size, num_layers, **given).layers)
        except Exception as error:
            raise ConfigError(f"{source} cannot be built: {in_one_line(error, source)}") from error
        super().__init__(cells, dropout=dropout, engine=engine)

    def timescales(self) -> list[Tensor]:
        """Return the time scales of the cells; [] if the cell does not define them."""
        try:
            return super().timescales()
        except NotImplementedError:
            return []


def load(source: str) -> type[Cell] | type[RNN]:
    """Load the class that a source names. Raises ConfigError, in one line."""
    if source.endswith(".py"):
        raise ConfigError(f"{source}: name the class in the file too: {source}:MyCell")
    where, _, name = source.rpartition(":") if ".py:" in source else source.rpartition(".")
    if not where or not name.isidentifier():
        raise ConfigError(f"{source}: give a file and a class, mine.py:MyCell, or a class, package.module.MyCell")
    try:
        module = _file(Path(where)) if ".py:" in source else importlib.import_module(where)
    except Exception as error:
        raise ConfigError(f"{where} cannot be imported: {in_one_line(error, source)}") from error
    found = getattr(module, name, None)
    if found is None:
        classes = [each for each, value in vars(module).items() if isinstance(value, type)]
        raise ConfigError(f"{where} has no {name}{nearest(name, classes)}")
    if not (isinstance(found, type) and issubclass(found, Cell | RNN)):
        raise ConfigError(
            f"{source} is neither a timescales.Cell nor a timescales.RNN: derive it from one (docs/gates.md)"
        )
    return found


def _file(path: Path) -> ModuleType:
    """Load the module of a file, once. It can import what is beside the file."""
    path = path.resolve()
    name = f"timescales_own_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise ConfigError("there is no such file")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def digest(source: str) -> str:
    """Return eight digits of a hash of the source's file; "" for a class of this package, which has golden curves."""
    made = load(source)
    if made.__module__.partition(".")[0] == "timescales":
        return ""
    return hashlib.sha256(Path(inspect.getfile(made)).read_bytes()).hexdigest()[:8]


def in_one_line(error: BaseException, source: str) -> str:
    """Write an error with the line of the source's file in which it was raised, if it was raised there."""
    file = source.rpartition(":")[0]
    text = (str(error).splitlines() or [""])[0]
    words = text if isinstance(error, ConfigError) else f"{type(error).__name__}: {text}"
    frames = traceback.extract_tb(error.__traceback__) if file else []
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == Path(file).resolve()]
    at = lines[-1] if lines else error.lineno if isinstance(error, SyntaxError) else None
    return f"{words} ({file}, line {at})" if file and at else words
