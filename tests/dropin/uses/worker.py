"""The checks that need two processes.

`python worker.py '[["ddp", "LSTM", "torch"], ...]'` starts both and prints the error of each case, "" if there is none.
"""

import copy
import json
import os
import socket
import sys
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_module, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import timescales
from uses.layers import Layer
from uses.tensors import close, data, same

PROCESSES = 2


def gradients(rnn: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of the mean loss of a batch."""
    rnn.zero_grad()
    mean_loss(rnn, x).backward()
    return [p.grad for p in rnn.parameters()]


def mean_loss(rnn: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A loss that is a mean over the batch."""
    return (rnn(x)[0].sin()).square().sum((0, 2)).mean()


def own_half(x: torch.Tensor) -> torch.Tensor:
    return x.chunk(PROCESSES, 1)[dist.get_rank()]


def after_a_step(rnn: nn.Module, x: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(rnn.parameters(), 0.1)
    mean_loss(rnn, x).backward()
    optimizer.step()


def ddp(layer: Layer) -> None:
    x = data(6, 4, 4)
    expected = gradients(layer.make(3), x)
    close(gradients(DistributedDataParallel(layer.make(3)), own_half(x)), expected)


def ddp_accelerated(layer: Layer) -> None:
    """Around torch's layer that runs on our engine; the weights after a step are those of torch's layer alone."""
    x, alone = data(64, 4, 4), layer.make(3)
    expected = gradients(alone, x)
    model = DistributedDataParallel(timescales.accelerate(layer.make(3)))
    close(gradients(model, own_half(x)), expected)
    after_a_step(model, own_half(x))
    after_a_step(alone, x)
    close([*timescales.restore(model.module).parameters()], [*alone.parameters()])


def ddp_frozen(layer: Layer) -> None:
    """DistributedDataParallel refuses a parameter without a gradient."""
    x = data(6, 4, 4)
    gates = ("forget", "input" if layer.name == "LSTM" else "refine")
    for frozen in (gates[:1], gates):
        alone, rnn = (layer.make(forget_init="uniform", frozen=frozen) for _ in range(2))
        expected = gradients(alone, x)
        close(gradients(DistributedDataParallel(rnn), own_half(x)), expected)


def fsdp(layer: Layer) -> None:
    x, alone = data(6, 4, 4), layer.make()
    after_a_step(alone, x)
    rnn = FullyShardedDataParallel(layer.make(), device_id=torch.device("cpu"))
    after_a_step(rnn, own_half(x))
    close(rnn(x)[0], alone(x)[0])


def parts(rnn: nn.Module) -> Iterable[nn.Module]:
    """The modules in which the layers' parameters are. A layer of torch's class has them itself."""
    return () if isinstance(rnn, nn.RNNBase) else rnn.layers


def fsdp2(layer: Layer) -> None:
    x, alone = data(6, 4, 4), layer.make(3)
    after_a_step(alone, x)
    rnn = layer.make(3)
    for part in parts(rnn):
        fully_shard(part, mesh=MESH[0])
    fully_shard(rnn, mesh=MESH[0])
    after_a_step(rnn, own_half(x))
    close(rnn(x)[0], alone(x)[0])


def fsdp2_reset(layer: Layer) -> None:
    new = layer.make(3)
    with torch.device("meta"):
        rnn = layer.make(3)
    for part in parts(rnn):
        fully_shard(part, mesh=MESH[0])
    fully_shard(rnn, mesh=MESH[0]).to_empty(device="cpu")
    torch.manual_seed(dist.get_rank())  # the first process decides
    rnn.reset_parameters()
    same([p.full_tensor() for p in rnn.parameters()], list(new.parameters()))
    close(rnn(data())[0], new(data())[0])


def fsdp_reset(layer: Layer) -> None:
    FullyShardedDataParallel(layer.make(), device_id=torch.device("cpu")).module.reset_parameters()


def dtensor(layer: Layer) -> None:
    x, rnn = data(), layer.make()
    expected = rnn(x)[0]
    distributed = distribute_module(copy.deepcopy(rnn), MESH[0])
    output, _ = distributed(distribute_tensor(x, MESH[0], [Replicate()]))
    assert isinstance(output, DTensor)
    close(output.to_local(), expected)


MESH: list = []


def work(rank: int, port: int, cases: list[list[str]]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    MESH.append(init_device_mesh("cpu", (PROCESSES,)))
    found = []
    for check, name, column in cases:
        try:
            globals()[check](Layer(name, column))
            error = ""
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        errors = [""] * PROCESSES
        dist.all_gather_object(errors, error)
        found.append(next(filter(None, errors), ""))
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads that FSDP1 and DDP leave abort some processes while Python ends


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = (port, json.loads(sys.argv[1]))
    torch.multiprocessing.start_processes(work, arguments, nprocs=PROCESSES, start_method="fork")


if __name__ == "__main__":
    main()
