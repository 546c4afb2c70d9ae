"""Build the task, the model and the optimizer of a configuration. If one cannot be built, ConfigError says why."""

from __future__ import annotations

import importlib
import inspect
import os
import typing
from collections.abc import Callable
from typing import Any

import torch

from timescales.config import Config, values
from timescales.config.schema import MODEL_DEFAULTS
from timescales.errors import ConfigError, MissingData, nearest
from timescales.models.auxiliary import AuxiliaryModel
from timescales.models.awd import AWDModel
from timescales.models.baselines import Baseline
from timescales.models.sequence import SequenceModel
from timescales.nn import engine
from timescales.nn.rnn import RNN
from timescales.nn.signatures import VARIABLE, parameters
from timescales.tasks import Spec, Task
from timescales.torch_private import without_compiler

# Keys of a model's configuration that are SequenceModel's, not the RNN's, with their defaults; +model.head_size=256
# gives a head to any model, +model.head_size=[256,256] one of two layers.
AROUND_RNN: dict[str, Any] = {"head_size": None, "head_dropout": 0.0, **MODEL_DEFAULTS}
AUXILIARY = {"auxiliary", "auxiliary_steps"}  # the keys of the second loss
# The base classes of what a _target_ may name.
KINDS: dict[str, tuple[type, ...]] = {"model": (RNN, Baseline), "task": (Task,), "optimizer": (torch.optim.Optimizer,)}


def build(config: Config) -> tuple[SequenceModel, Task, torch.optim.Optimizer]:
    """Build the model, the task and the optimizer of a resolved configuration, on its device. Set torch's seed.

    The model is built on the CPU and moved, so the same seed gives the same weights everywhere. "auto" in
    config["device"] and config["model"]["T_max"] is resolved in place, in `config` itself. Torch's precision and
    determinism are set too.

    Raises ConfigError if something cannot be built.
    """
    config["device"] = pick_device(config["device"])
    set_up_torch(config["precision"], config["deterministic"])
    torch.manual_seed(config["seed"])
    task = build_task(config)
    torch.manual_seed(config["seed"])  # the weights do not depend on what the task drew
    model = build_model(config, task)
    return model, task, build_optimizer(config["optimizer"], config["device"], model)


def build_task(config: Config, device: str | None = None) -> Task:
    """Build the task of a configuration, on its device or on another. Raises ConfigError; MissingData without data."""
    shared = {"seed": config["seed"], "device": device or config["device"], "data_root": config.get("data_root")}
    return construct("task", config["task"], **shared)


def build_optimizer(config: Config, device: str, model: SequenceModel) -> torch.optim.Optimizer:
    """Build the optimizer of a model's parameters, in the fastest form that it has on this device.

    torch updates all parameters in one call with `fused`, or in one call for each operation with `foreach`. If the
    settings name a form, it is kept.

    Raises ConfigError for an optimizer that cannot take the loop's step, which has no closure and dense gradients. This
    is tried on small parameters, one for each dtype and number of dimensions.
    """
    named = {"fused", "foreach", "capturable", "differentiable"} & set(config)
    known = () if named else arguments_of(locate("optimizer", config.get("_target_")))
    forms = [*({key: True} for key in ("fused", "foreach") if key in known), {}]
    if device == "cpu" and not all(parameter.is_contiguous() for parameter in model.parameters()):
        # The CPU kernels of `fused` assume that all tensors are contiguous.
        forms = [form for form in forms if "fused" not in form]
    kinds = sorted({(parameter.dim(), parameter.dtype) for parameter in model.parameters()}, key=str)
    sample = [torch.zeros((2,) * n, device=device, dtype=dtype, requires_grad=True) for n, dtype in kinds]
    for parameter in sample:
        parameter.grad = torch.ones_like(parameter)
    for form in forms:
        try:
            optimizer = construct("optimizer", config, params=model.parameters(), **form)
            with torch.random.fork_rng(devices=[]):
                construct("optimizer", config, params=sample, **form).step()
            break
        except Exception as error:  # torch's raise AssertionError, too
            if form:
                continue
            if isinstance(error, ConfigError):
                raise
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise ConfigError(
                f"optimizer={config.get('name')}: {config['_target_']} cannot train with these settings ({why}); "
                "take another optimizer, such as optimizer=adam"
            ) from error
    return optimizer


def set_up_torch(precision: str, deterministic: bool) -> None:
    """Set torch's precision, and whether it may use algorithms that are not deterministic."""
    torch.set_flush_denormal(True)  # before anything runs in parallel: threads that exist already keep their setting
    torch.set_float32_matmul_precision({"fp32": "highest", "tf32": "high"}[precision])
    torch.backends.cudnn.allow_tf32 = precision == "tf32"  # torch's default is true
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch refuses cuBLAS without; read at first use
    warns = torch.is_deterministic_algorithms_warn_only_enabled()  # set by somebody else in this process
    # The call imports torch's compiler, which takes two seconds.
    if warns or deterministic != torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(deterministic)


def build_model(config: Config, task: Task) -> SequenceModel:
    """Build the model of a configuration, sized by the task, on the configuration's device.

    A T_max of "auto" in config["model"] is replaced, in `config` itself, by the task's horizon in steps.
    Raises ConfigError for an argument that does not exist or does not fit, and for an engine that cannot run here.
    """
    model = model_for(config, task.spec)
    if model.gap_input and next(task.batches("train")).dt is None:
        raise ConfigError("model.gap_input=true is for irregular steps, such as task=frequency: leave it out")
    if isinstance(model, AuxiliaryModel) and (task.has_resets or next(task.batches("train")).reset is not None):
        raise ConfigError("model.auxiliary is for sequences without resets: give model.auxiliary=none")
    if config["engine"] != "auto":
        check_engine(config["engine"], model.rnn, task, config["device"])
    return model


def model_for(config: Config, spec: Spec) -> SequenceModel:
    """Build the model from what it must know about the task. Read no data."""
    fill_horizon(config["model"], spec.horizon)
    of_rnn = {key: value for key, value in config["model"].items() if key not in AROUND_RNN}
    # Keys at their defaults are left out: AWDModel takes none of them.
    around = {k: v for k, v in config["model"].items() if k in AROUND_RNN and v != AROUND_RNN[k]}
    if issubclass(locate("model", of_rnn.get("_target_")), Baseline):  # type: ignore[arg-type]  # it is a class
        check_baseline(config, spec)
    hidden, layers = of_rnn.get("hidden_size"), of_rnn.get("num_layers", 1)
    if spec.awd is not None and spec.awd.tied and isinstance(hidden, int) and isinstance(layers, int) and layers > 1:
        # The last layer has the size of the embedding. For one layer the number would then mean nothing: it is kept.
        of_rnn["hidden_size"] = hidden = [*[hidden] * (layers - 1), spec.width]
    width = spec.width + (around.get("gap_input") is True)
    input_size: Any = width
    if around.get("block") == "residual":  # an encoder and a residual stream of the layers' size are around the RNN
        input_size = hidden[0] if isinstance(hidden, list) and hidden else hidden
    rnn = construct("model", of_rnn, input_size=input_size, engine=config["engine"])
    if isinstance(rnn, RNN):
        try:
            rnn.timescales()  # each run's record has them
        except NotImplementedError as error:
            raise ConfigError(f"model: {error}") from error
    kind: type[SequenceModel] = AWDModel if spec.awd else SequenceModel
    parts = {"rnn": rnn, "spec": spec}
    if spec.awd and AUXILIARY & set(around):
        raise ConfigError("model.auxiliary is not for ptb_word, wt2 and wt103: give model.auxiliary=none")
    if "auxiliary" in around:
        kind, parts["decoder"] = AuxiliaryModel, construct("model", of_rnn, input_size=width, engine=config["engine"])
    elif "auxiliary_steps" in around:
        raise ConfigError("model.auxiliary_steps is for a second loss: give model.auxiliary=reconstruct or predict")
    return call("model", kind, around, of_rnn.get("name"), **parts).to(config["device"])


def check_baseline(config: Config, spec: Spec) -> None:
    """Raise ConfigError for a setting or a task that is for layers of cells: this model is not made of cells."""
    name = config["model"]["name"]
    if config["engine"] != "auto":
        raise ConfigError(f"engine={config['engine']} is for layers of cells, not for model={name}: give engine=auto")
    if config["model"].get("block") == "residual":
        raise ConfigError(f"model.block=residual is for layers of cells, not for model={name}: give block=plain")
    if any(config["model"].get(key, AROUND_RNN[key]) != AROUND_RNN[key] for key in AUXILIARY):
        raise ConfigError(f"model.auxiliary is for layers of cells, not for model={name}: give model.auxiliary=none")
    if spec.awd is not None:
        fix = "take another model, or characters, such as task=ptb_char"
        raise ConfigError(f"the dropouts of this task's language model are for layers of cells, not for {name}: {fix}")


def check_engine(name: str, rnn: RNN, task: Task, device: str) -> None:
    """Raise ConfigError if the named engine cannot run the cells here."""
    batch = next(task.batches("train")) if name == "cudnn" else None  # others take masks and resets
    masked = batch is not None and batch.mask is not None
    resets = batch is not None and (batch.reset is not None or task.has_resets)
    for cell in rnn.layers:
        try:
            engine.pick(name, cell, torch.zeros(2, 1, cell.input_size, device=device), masked, stepwise=resets)
        except ValueError as error:
            raise ConfigError(str(error)) from error


def fill_horizon(node: Any, horizon: int) -> None:
    """Put the task's horizon wherever a model's configuration says T_max: auto, also inside forget_init."""
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        fill_horizon(inner, horizon)
    if isinstance(node, dict) and node.get("T_max") == "auto":
        node["T_max"] = horizon


def pick_device(name: str) -> str:
    """Return the device to use for a configuration's word; "auto" is a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: torch sees no GPU here; use device=cpu or device=auto")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0].split(". ")[0]
        raise ConfigError(f"device={name}: {why}; device=auto uses a GPU if there is one") from error
    return name


def construct(group: str, config: Config, **shared: Any) -> Any:
    """Call config["_target_"] with the other keys as arguments, and those of `shared` that it takes."""
    arguments = {key: value for key, value in config.items() if key not in ("_target_", "name")}
    target: Any = locate(group, config.get("_target_"))
    if group == "optimizer":
        target = without_compiler(target)
    return call(group, target, arguments, config.get("name"), **shared)


def call(group: str, target: Callable, arguments: dict[str, Any], name: str | None = None, **shared: Any) -> Any:
    """Call a class with arguments from a configuration group and those of `shared` that it takes, all checked."""
    known = arguments_of(target)
    where = f"{target.__module__}.{target.__qualname__}"
    if "batch_first" in arguments:
        raise ConfigError(f"{group}.batch_first: every task gives steps first, (S, B, ...): leave it out")
    for key in arguments:
        if key not in known or key in shared:
            names = [name for name in known if name not in shared]
            hint = nearest(key, names) or f": it takes {', '.join(names) or 'none'}"
            raise ConfigError(f"{group}.{key} is no argument of {where}{hint}")
    for key, value in arguments.items():
        try:
            values.require(f"{group}.{key}", value, known[key])
        except ConfigError as error:
            raise ConfigError(f"{error}{_on_quotes(group, key, value, known[key])}") from None
    arguments |= {key: value for key, value in shared.items() if key in known}
    try:
        inspect.signature(target).bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{group}: {error} (of {where})") from error
    try:
        return target(**arguments)
    except MissingData as error:
        raise MissingData(f"{group}={name}: {error}") from error
    except ValueError as error:  # for people: says what is wrong and how to fix it
        raise ConfigError(f"{group}={name}: {error}") from error


def _on_quotes(group: str, key: str, value: Any, hint: Any) -> str:
    """Return a hint for a word that YAML has read as another value, such as NO as false; "" if it is not the cause."""
    items, example = (value, "[WORD]") if isinstance(value, list) else ([value], "WORD")
    if not values.fits(["word"] if isinstance(value, list) else "word", hint):
        return ""
    read = next((item for item in items if item is None or isinstance(item, bool | int | float)), "")
    if read == "":
        return ""
    quoted = example.replace("WORD", "'WORD'")
    return (
        f": YAML read {values.spell(read)}; if it is a word, quotes keep it: "
        f"""{key}: {quoted} in a file, "{group}.{key}={quoted}" in a shell"""
    )


def locate(group: str, target: Any) -> Callable:
    """Import the class that a configuration names: an RNN, a Task or an Optimizer, of any module."""
    module, _, name = str(target).rpartition(".")
    if not module or not all(part.isidentifier() for part in str(target).split(".")):
        raise ConfigError(f"{group}._target_ must be module.class, such as timescales.LSTM; not {target!r}")
    try:
        target_class = getattr(importlib.import_module(module), name, None)
    except (ImportError, AttributeError) as error:
        if not isinstance(error, ModuleNotFoundError) or not f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(f"{group}._target_: {module} cannot be imported: {error}") from error
        hint = "" if module.split(".")[0] in ("timescales", "torch") else "; PYTHONPATH must name its folder"
        raise ConfigError(f"{group}._target_: there is no {target} ({error}{hint})") from error
    if target_class is None:
        raise ConfigError(f"{group}._target_: there is no {target} (module {module} has no {name})")
    if not (isinstance(target_class, type) and issubclass(target_class, KINDS[group])):
        raise ConfigError(f"{group}._target_: {target} is not a subclass of {KINDS[group][0].__name__}")
    return target_class


def arguments_of(target: Any) -> dict[str, Any]:
    """Return the arguments of a class by name, with their types. `**keywords: Unpack[...]` counts as the keys in it.

    The type is Any for an argument without one, or if a type is only imported under `if TYPE_CHECKING`.
    """
    known: dict[str, Any] = {}
    for name, parameter in parameters(target).items():
        hint = parameter.annotation
        if typing.get_origin(hint) is typing.Unpack:
            known |= typing.get_type_hints(typing.get_args(hint)[0])
        elif parameter.kind not in VARIABLE:
            known[name] = Any if hint is parameter.empty or isinstance(hint, str) else hint
    return known
