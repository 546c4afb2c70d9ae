"""The memory of the fused engine: garbage collection at any moment, what is kept, and what is freed."""

import gc
import signal
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from quick import ends_well_in_a_fork

import timescales
from timescales.nn.engine.cpu import workspace
from timescales.nn.engine.cpu.workspace import Workspace


@pytest.fixture(autouse=True)
def _nothing_kept(own_objects):
    gc.collect()
    timescales.free_memory()
    yield
    timescales.free_memory()


def sizes():
    return sorted(len(memory) for memory, _ in Workspace._unused)


def die_at_each_line():
    """Create two workspaces and release them, again and again; another one dies at the next line each time."""
    dying, lines, seen, at = [], set(), 0, 0

    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename != workspace.__file__:
            return None
        if event == "line":
            seen += 1
            if seen == at:
                lines.add(frame.f_lineno)
                dying.clear()
        return trace

    while seen >= at:
        seen, at = 0, at + 1
        dying.append(Workspace(3000))
        sys.settrace(trace)
        first, second = Workspace(4000), Workspace(5000)
        different = first.address != second.address
        first.release()
        second.release()
        sys.settrace(None)
        assert different
        assert len(sizes()) <= Workspace.MAX_UNUSED
    assert len(lines) >= 15


def test_a_workspace_may_die_at_any_line_of_another():
    """The garbage collector calls `Workspace.__del__` also inside `__init__` and `release`; a lock would wait."""
    assert ends_well_in_a_fork(lambda: signal.alarm(20) or die_at_each_line())


@pytest.mark.slow
def test_the_end_of_a_process_is_quiet():
    code = "import torch, timescales; kept = timescales.LSTM(3, 5, 12)(torch.randn(6, 2, 3))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "Workspace" not in done.stderr


def test_the_largest_goes_first():
    made = [Workspace(1024 * k) for k in range(1, Workspace.MAX_UNUSED + 3)]
    for each in made:
        each.release()
    assert sizes() == [4096 * k for k in range(1, Workspace.MAX_UNUSED + 1)]


def test_the_smallest_that_fits_is_used_again():
    made = [Workspace(floats) for floats in (1 << 12, 1 << 16, 1 << 22)]
    addresses = [each.address for each in made]
    for each in made:
        each.release()
    assert Workspace(5000).address == addresses[1]
    assert Workspace(100).address == addresses[0]
    assert Workspace(1 << 17).address not in addresses  # the only one that is large enough is much too large


def test_free_memory():
    rnn, x = timescales.LSTM(3, 5, 2, engine="fused"), torch.randn(6, 2, 3)
    output, _ = rnn(x)
    expected = torch.autograd.grad(output.sum(), rnn.layers[0].weight_hh, retain_graph=True)[0]
    output, _ = rnn(x)
    timescales.free_memory()
    assert sizes() == []
    output.sum().backward()  # its workspaces were in use
    assert torch.equal(rnn.layers[0].weight_hh.grad, expected)
    del output
    assert len(sizes()) == 2
    timescales.free_memory()
    assert sizes() == []


def test_threads_never_share_a_workspace():
    taken, failures = set(), []

    def work(_):
        for _ in range(2000):
            mine = Workspace(1000)
            if mine.address in taken:
                failures.append(mine.address)
            taken.add(mine.address)
            taken.discard(mine.address)
            mine.release()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not failures
    assert len(sizes()) <= Workspace.MAX_UNUSED


OWN = """
import torch
from typing import NamedTuple
from timescales import RNN, Cell
def squash(x):
    return x.sigmoid()
class Own(Cell):
    gates = ("rate", "cell")
    class State(NamedTuple):
        h: torch.Tensor
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.squash = squash
    def step(self, gx, gh, state, dt=1.0):
        rate, u = (gx + gh).chunk(2, -1)
        f = self.squash(rate)
        return self.State(f * state.h + (1 - f) * u)
rnn = RNN([Own(3, 5)], engine="fused")
output, _ = rnn(torch.randn(6, 2, 3))
"""


def test_a_model_of_a_class_of_ones_own_is_freed_with_the_names_beside_it():
    """What the engines keep of a cell must not keep its class or functions: these keep all names beside them."""
    names = {"__name__": "own"}
    exec(OWN, names)
    rnn, output = weakref.ref(names["rnn"]), weakref.ref(names["output"])
    del names
    gc.collect()
    assert (rnn(), output()) == (None, None)
