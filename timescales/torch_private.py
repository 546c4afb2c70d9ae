"""Keep every use of torch's private interface in one place, because any version may change it: 2.11 to 2.13 work.

`tests/test_torch_private.py` fails for another version and says what to compare. Not in this list are `_parameters`,
`_buffers` and `_modules` of a module, which have been there, under these names, since torch 0.4.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, _use_grad_for_differentiable
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import (
    SUPPORTED_NODES,
    GetAttrKey,
    _register_namedtuple,
    register_pytree_node,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_map_only,
)

__all__ = ["GetAttrKey", "register_pytree_node", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only"]

WRITTEN_FOR = ("2.11", "2.12", "2.13")

# The modes of make_fx and torch.export.
_PROXY, _FAKE = torch._C._TorchDispatchModeKey.PROXY, torch._C._TorchDispatchModeKey.FAKE

# torch.nn.LSTM and GRU without their checks: x, state, weights and seven options, in this order.
lstm: Any = torch._VF.lstm
gru: Any = torch._VF.gru
set_gradients: Any = torch._C._set_grad_enabled  # what torch.no_grad() calls, as a mode of torch sees it
is_zero: Any = Tensor._is_zerotensor  # whether a gradient is all zero and has no memory


class DispatchMode(TorchDispatchMode):
    """Let a subclass see the operations of torch below autograd."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler at the first operation, which takes seconds


def is_recorded() -> bool:
    """Return whether torch records its operations: torch.jit, make_fx, torch.export."""
    mode = torch._C._get_dispatch_mode  # every call asks this, so it is written without a loop
    return torch._C._is_tracing() or mode(_PROXY) is not None or mode(_FAKE) is not None


def is_transformed() -> bool:
    """Return whether torch transforms its operations: torch.func."""
    return torch._C._are_functorch_transforms_active()


def saved_tensors_have_hooks() -> bool:
    """Return whether hooks replace the tensors that autograd saves. torch.utils.checkpoint has such hooks."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def is_in_dual_level() -> bool:
    """Return whether derivatives are computed in forward mode, by torch.autograd.forward_ad."""
    return torch.autograd.forward_ad._current_level >= 0


def is_batched(tensor: Tensor) -> bool:
    """Return whether a tensor is a batch of gradients, as with is_grads_batched=True."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def operation(func: Any) -> str:
    """Return the name of an operation that a `DispatchMode` sees, for example "add"."""
    name: str = func._overloadpacket.__name__
    return name


def schema(func: Any) -> Any:
    """Return the arguments of an operation that a `DispatchMode` sees, and which of them it writes to."""
    return func._schema


def function_of(node: Any) -> type | None:
    """Return the autograd.Function class that made a node of the graph; None if torch itself made the node."""
    return getattr(node, "_forward_cls", None)


def gradients_of(node: Any) -> list[tuple[Any, torch.dtype]]:
    """Return the shape and the dtype of each gradient that a node of autograd gets."""
    return [(form.shape, form.dtype) for form in node._input_metadata]


def register_named_tuple(kind: type, name: str) -> None:
    """Let torch.export know a named tuple by this name, unless it knows it already."""
    if kind not in SUPPORTED_NODES:
        _register_namedtuple(kind, serialized_type_name=name)


def compile_with_backward(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """Let torch.compile compile a function as a whole, and its backward pass at the same time.

    torch would compile the backward pass when it first runs, where nobody can catch a failure. Random numbers are those
    that the function draws without compilation.
    """
    import torch._functorch.config
    import torch._inductor.config

    torch._functorch.config.donated_buffer = False  # True refuses backward(retain_graph=True); read when backward runs
    compiler: Any = torch._dynamo.lookup_backend(backend)

    def compile_both(graph: Any, inputs: Any) -> Any:
        with (
            torch._functorch.config.patch(force_non_lazy_backward_lowering=True),
            torch._inductor.config.patch(fallback_random=True),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # advice on TF32 and on this machine
            return compiler(graph, inputs)

    return torch.compile(function, fullgraph=True, backend=compile_both)


def graph_break(reason: str) -> None:
    """Let torch.compile run the following operations uncompiled."""
    torch._dynamo.graph_break(msg=reason)  # torch imports it itself when it compiles


def leave_to_python(function: Any) -> None:
    """Let torch.compile run a function, and what it calls, as it is. (torch.compiler.disable imports the compiler.)"""
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

    set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))


def without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """Return an optimizer's class whose methods do not import torch's compiler, which takes two seconds.

    torch wraps these methods for programs that compile an optimizer. Ours never do, so they call what is wrapped.
    Methods that are not torch's wrappers stay as they are, and so does a class that cannot have a subclass like this.
    """

    def is_wrapper(method: Any, wrap: Callable[[Any], Any]) -> bool:
        # All functions that a decorator makes have the same code. A user's function may have their __wrapped__.
        return getattr(method, "__code__", None) is wrap(lambda: None).__code__

    methods: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        method: Any = getattr(kind, name)
        if is_wrapper(method, torch._disable_dynamo):
            methods[name] = method.__wrapped__
    wrapped_step: Any = kind.step
    while is_wrapper(wrapped_step, Optimizer.profile_hook_step):
        wrapped_step = wrapped_step.__wrapped__  # without the hooks, which a new class gets again
    if is_wrapper(wrapped_step, _use_grad_for_differentiable):
        wrapped_step = wrapped_step.__wrapped__

        def step(self: Optimizer, *arguments: Any, **named: Any) -> Any:
            with torch.set_grad_enabled(self.defaults["differentiable"]):
                return wrapped_step(self, *arguments, **named)

        methods["step"] = step
    try:
        return type(kind.__name__, (kind,), methods)
    except Exception:  # of __init_subclass__ or a metaclass
        return kind
