"""Threads, processes, and memory that the garbage collector frees."""

import copy
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import multiprocessing

from uses.layers import ELEMENTWISE, Layer
from uses.registry import NOT_RUN, SHARDS, Refused, Run, group, refused_here, use
from uses.tensors import close, data, loss_of, same, trained

group("Threads and processes")
WORKER = Path(__file__).with_name("worker.py")


@use("four threads train with one module: every result is bitwise that of one thread")
def threads(layer: Layer) -> None:
    rnn = layer.make(3)
    inputs = [data(seed=k).requires_grad_() for k in range(4)]
    expected = [trained(rnn, x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: [trained(rnn, x) for _ in range(3)], inputs))
    for results, right in zip(found, expected, strict=True):
        for result in results:
            same(result, right)


@use("a fork after a forward pass: the child computes the same")
def forked(layer: Layer) -> None:
    rnn, x = layer.make(), data()
    expected = rnn(x)[0].detach()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(torch.equal(rnn(x)[0], expected)))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert queue.get()


@use("`share_memory`: a process trains the weights of another")
def shared(layer: Layer) -> None:
    rnn, x = layer.make().share_memory(), data()
    alone = copy.deepcopy(rnn)
    step(alone, x)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=step, args=(rnn, x))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    close(list(rnn.parameters()), list(alone.parameters()))


def step(rnn: torch.nn.Module, x: torch.Tensor) -> None:
    """One step of gradient descent."""
    loss_of(rnn(x)[0]).backward()
    torch.optim.SGD(rnn.parameters(), 0.01).step()


# What needs two processes: uses and layers. Who runs several says so first: worker.py is started once for all of them.
CASES: list[tuple[str, Layer]] = []
CHECKS = ("ddp", "ddp_accelerated", "ddp_frozen", "fsdp", "fsdp_reset", "fsdp2", "fsdp2_reset", "dtensor")


@functools.cache
def two_processes(cases: tuple[tuple[str, Layer], ...]) -> list[str]:
    """What worker.py reports of each case from two processes: an error, or nothing."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    given = json.dumps([(check, layer.name, layer.column) for check, layer in cases])
    done = subprocess.run(
        [sys.executable, WORKER, given], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    if done.returncode:
        return [f"worker.py ends with status {done.returncode}: {done.stderr}"] * len(cases)
    return json.loads(done.stdout.splitlines()[-1])


def in_processes(check: str, register: Callable[[Run], Run]) -> None:
    """Put a check of worker.py into the list of uses, by its name."""

    def run(layer: Layer) -> None:
        case = (check, layer)
        cases = tuple(CASES) if case in CASES else (case,)
        if error := two_processes(cases)[cases.index(case)]:
            raise RuntimeError(error)

    run.__name__ = check
    register(run)


MIXED = "mixed torch.Tensor and DTensor"
in_processes("ddp", use("`DistributedDataParallel` on two processes: the gradients of the whole batch"))
in_processes("ddp_accelerated", use(
    "`DistributedDataParallel` of torch's layer after `timescales.accelerate`", ours=NOT_RUN, only=("LSTM", "GRU"),
))  # fmt: skip
in_processes("ddp_frozen", use(
    "`DistributedDataParallel` of layers with frozen gates", torch=NOT_RUN, only={"LSTM", "URLSTM"},
))  # fmt: skip
in_processes("fsdp", use("`FullyShardedDataParallel` (FSDP1) on two processes: a step as on one"))
in_processes("fsdp2", use(
    "`fully_shard` (FSDP2), of single layers where they are modules, on two processes: a step as on one",
))  # fmt: skip
in_processes("fsdp2_reset", use(
    "a layer on the meta device, `fully_shard`, `to_empty` and `reset_parameters()`: the weights of a new layer",
    torch=NOT_RUN,
))  # fmt: skip
in_processes("fsdp_reset", refused_here(
    "`reset_parameters()` under FSDP1", "call reset_parameters() before", why=SHARDS,
))  # fmt: skip
in_processes("dtensor", use(
    "weights distributed as `DTensor` (`distribute_module`): results as without",
    torch=Refused(MIXED), only=ELEMENTWISE,
))  # fmt: skip
in_processes("dtensor", refused_here(
    "weights distributed as `DTensor`, where the layer computes recurrent weights or starts from an identity matrix",
    MIXED, {"ExpRNN", "RMC"}, SHARDS,
))  # fmt: skip


COLLECTED = """
import faulthandler, random
faulthandler.dump_traceback_later(45, exit=True)
import torch, timescales
torch.set_num_threads(1)
rnn, x = timescales.LSTM(3, 5), torch.randn(6, 2, 3)
class Holder: pass
for k in range(1500):
    holder = Holder()
    holder.me, holder.value = holder, rnn(x)[0]
    holder.log = [[] for _ in range(random.randrange(60))]
print("done")
"""


@use(
    "the garbage collector frees graphs while others are built (reference cycles)",
    torch=NOT_RUN, eager=NOT_RUN, only={"LSTM"},
)  # fmt: skip
def collected(layer: Layer) -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "done", done.stderr
