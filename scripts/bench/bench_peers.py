"""Layers of other libraries, for the section `peers` of bench.py: torchrecurrent's cells and scans of JAX.

They are no dependencies: `pip install -r scripts/bench/peers.txt`. A library that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

# By library, our variants and the name that theirs has: a class of torchrecurrent, a function of `scan_step`.
PEERS = {
    "torchrecurrent": {"JANET": "JANET", "IndRNN": "IndRNN", "LEM": "LEM", "CoRNN": "coRNN"},
    "jax": {"fused LSTM": "LSTM", "own gate": "gate"},
}


def variants() -> tuple[str, ...]:
    """Our variants, each before theirs, of the libraries that are installed."""
    pairs = [(ours, f"{library} {name}") for library, names in PEERS.items() for ours, name in names.items()]
    return tuple(variant for pair in pairs if importlib.util.find_spec(pair[1].partition(" ")[0]) for variant in pair)


def loop_layer(name: str, inputs: int, hidden: int) -> torch.nn.Module:
    """A layer of torchrecurrent."""
    import torchrecurrent

    layer: torch.nn.Module = getattr(torchrecurrent, name)(inputs, hidden)
    return layer


def scan_step(name: str, S: int, B: int, I: int, H: int) -> Callable[[], Any]:  # noqa: E741
    """Forward and backward of a compiled `jax.lax.scan` over the same equations; the input is multiplied before it."""
    import jax
    import jax.numpy as jnp

    gates = {"LSTM": 4, "gate": 2}[name]
    shapes = [(S, B, I), (S, B, H), (I, gates * H), (H, gates * H), (gates * H,)]
    x, d_output, *weights = [jnp.asarray((torch.rand(shape) - 0.5).numpy()) for shape in shapes]

    def lstm(state: Any, z: Any) -> Any:
        _, c = state
        i, f, g, o = jnp.split(z, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def gate(state: Any, z: Any) -> Any:
        rate, u = jnp.split(z, 2, -1)
        f = jnp.exp(-jax.nn.softplus(rate))
        return (f * state[0] + (1 - f) * jnp.tanh(u),)

    step, fields = {"LSTM": (lstm, 2), "gate": (gate, 1)}[name]

    def loss(weights: Any) -> Any:
        ih, hh, bias = weights

        def over(state: Any, z: Any) -> Any:
            state = step(state, z + state[0] @ hh)
            return state, state[0]

        _, outputs = jax.lax.scan(over, (jnp.zeros((B, H)),) * fields, x @ ih + bias)
        return (outputs * d_output).sum()

    gradients = jax.jit(jax.grad(loss))
    return lambda: jax.block_until_ready(gradients(weights))
