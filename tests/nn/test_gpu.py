"""On a GPU: what the CPU tests show, there too. `make gpu` runs these; `make test` leaves them out.

TIMESCALES_GPU_TESTS=cpu rehearses them where there is none.
"""

import gc
import os
import signal

import cell_models
import pytest
import torch
import trainings
from engine_cases import batched_seeds, close, compare, some_state
from hydra import compose, initialize_config_dir

from timescales import GRU, LSTM, PLSTM, URLSTM, GatedRNN, paths
from timescales.config import folders, identity
from timescales.config.schema import LoopSettings
from timescales.models.sequence import SequenceModel
from timescales.nn import engine as engines
from timescales.nn.engine import eager
from timescales.nn.engine.equations import of_cell
from timescales.nn.engine.gpu import capture, cluster, graph
from timescales.nn.engine.gpu.buffers import Buffers
from timescales.tasks import Copy
from timescales.training import build, graphs, loop
from timescales.training.run import TrainingRun

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("TIMESCALES_GPU_TESTS", "cuda")


def config(device, *overrides, task="copy"):
    identity.register()
    small = ["task.batch_size=16", "task.train_size=160", "task.valid_size=20", "task.test_size=20"]
    if task == "copy":
        small.append("task.T=8")
    with initialize_config_dir(str(paths.conf()), version_base="1.3"):
        cfg = compose("config", [f"task={task}", f"device={device}", "logger=none", *small, *overrides])
    return identity.resolved(cfg)


@pytest.mark.parametrize("model", folders.choices("model"))
@pytest.mark.parametrize("task", ["copy", "frequency"])
def test_a_step_equals_the_cpus(model, task):
    losses, gradients = [], []
    for device in ("cpu", DEVICE):
        network, job, _ = build.build(config(device, f"model={model}", "engine=eager", task=task))
        batch = next(job.batches("train"))
        loss = job.loss(network(batch).logits, batch)
        loss.backward()
        assert loss.device.type == device.split(":")[0]
        losses.append(loss.item())
        gradients.append([p.grad.cpu() for p in network.parameters()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for cpu, gpu in zip(*gradients, strict=True):
        torch.testing.assert_close(gpu, cpu, rtol=1e-3, atol=1e-6)  # float32 sums in another order


@pytest.mark.parametrize("task", ["copy", "frequency"])
def test_data_are_those_of_the_cpu(task):
    found = [next(build.build(config(device, task=task))[1].batches("train", 3, 1)) for device in ("cpu", DEVICE)]
    for cpu, gpu in zip(*found, strict=True):
        if cpu is not None:
            torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-6, atol=1e-6)


def test_interrupted_run_goes_on(tmp_path):
    def fit(folder, stop_after=None):
        (tmp_path / folder).mkdir(exist_ok=True)
        network, job, optimizer = build.build(config(DEVICE))

        def log(values, step):
            if step == stop_after:
                signal.raise_signal(signal.SIGINT)

        return trainings.fit(network, job, optimizer, log, LoopSettings(max_epochs=1), tmp_path / folder)

    whole = fit("whole")
    with pytest.raises(KeyboardInterrupt):
        fit("parts", stop_after=4)
    # Sums on a GPU are not always in the same order: equal to rounding, bitwise only with deterministic=true.
    assert fit("parts").progress.curve[-1]["valid/loss"] == pytest.approx(
        whole.progress.curve[-1]["valid/loss"], rel=1e-4
    )


# ------------------------------------------------------------------------------------------ engines, at full size

ON_GPU = DEVICE.startswith("cuda")
only_gpu = pytest.mark.skipif(not ON_GPU, reason="what a CPU does not have")
SIZES = (
    {"copy": (220, 128, 10, 128), "digits": (784, 100, 1, 256), "odd": (61, 37, 5, 110)}
    if ON_GPU
    else {"small": (12, 5, 3, 18)}
)
MODELS = {"lstm": LSTM, "ur": URLSTM, "plstm": PLSTM, "separate": lambda i, h: PLSTM(i, h, coupled=False)}
MODELS |= {
    "gru": GRU,
    "om": lambda i, h: GatedRNN(i, h, gate="om", downsize=2),
    "o": lambda i, h: GatedRNN(i, h, gate="o"),
}


@pytest.fixture(autouse=True)
def _settings():
    torch.manual_seed(1)
    yield
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)


def results(model, engine, x, state, dt, mask, dtype=torch.float32):
    """Output, final state and gradients by name; every output is in the loss."""
    model.engine = engine
    model.to(dtype).zero_grad()
    x = x.detach().to(dtype, copy=True).requires_grad_()
    state = [type(s)(*(v.to(dtype) for v in s)) for s in state]
    y, after = model(x, state, None if dt is None else dt.to(dtype), mask)
    after = model.split_state(after)
    # A weight per output, about 1 in all: gradients of the size that a mean over the batch has.
    (y * torch.linspace(-1.0, 1.0, y.numel(), device=y.device, dtype=dtype).view_as(y)).sum().div(y.numel()).backward()
    found = {"output": y.detach(), "d x": x.grad} | {f"d {name}": p.grad for name, p in model.named_parameters()}
    model.float()
    return found | {name: value.detach() for name, value in after[-1]._asdict().items()}


def problem(name, size):
    S, B, inputs, H = SIZES[size]
    model = MODELS[name](inputs, H).to(DEVICE)
    state = [type(s)(*(v.to(DEVICE) for v in s)) for s in some_state(model, B)]
    x, dt = torch.randn(S, B, inputs, device=DEVICE), 2.0 * torch.rand(S, B, device=DEVICE)
    return model, x, state, dt, torch.rand(S, B, device=DEVICE) < 0.9


# float32: some tens of roundings of 6e-8, and a GPU's exponentials to 2 units in the last place. TF32 keeps ten bits of
# the factors: 5e-4 per product, over steps that depend on each other.
BOUNDS = {"highest": 1e-4, "high": 3e-2}


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_graph_engine_at_full_size(name, size, precision):
    """Uncaptured at first, captured from the second time on; plain, then with dt and mask."""
    model, x, state, dt, mask = problem(name, size)
    for d, m in ((None, None), (dt, mask)):
        torch.set_float32_matmul_precision("highest")
        true = results(model, "eager", x, state, d, m, torch.float64)
        torch.set_float32_matmul_precision(precision)
        for _ in range(3):
            fast = results(model, "graph", x, state, d, m)
            for key in true:
                scale = true[key].abs().max().item() + 1e-12
                close(fast[key] / scale, true[key] / scale, BOUNDS[precision], key)


@pytest.mark.parametrize("size", SIZES)
def test_cudnn_engine_at_full_size(size):
    model, x, state, _, _ = problem("lstm", size)
    torch.backends.cudnn.allow_tf32 = False
    true = results(model, "eager", x, state, None, None, torch.float64)
    fast = results(model, "cudnn", x, state, None, None)
    for key in true:
        scale = true[key].abs().max().item() + 1e-12
        close(fast[key] / scale, true[key] / scale, BOUNDS["highest"], key)


@pytest.mark.parametrize("name", cell_models.NAMES)
def test_every_cell_equals_the_eager_engine(name):
    """Captured, with dt and its gradient, mask and state; all cells have passed their trials."""
    model = cell_models.model(name, 3, 44).to(DEVICE)
    state = [type(s)(*(v.to(DEVICE) for v in s)) for s in some_state(model, 6)]
    x, dt = torch.randn(9, 6, 3, device=DEVICE), 2.0 * torch.rand(9, 6, device=DEVICE)
    mask = torch.rand(9, 6, device=DEVICE) < 0.7
    for d, m in ((None, None), (dt, mask)):
        for _ in range(3):
            compare("graph", model, x, state, d, m, tolerance=BOUNDS["highest"])


@pytest.mark.parametrize("name", ["lstm", "plstm", "gru", "gated_lstm_o", "gated_gru_om_4"])
def test_the_cluster_engine_equals_the_eager_engine(name):
    """Several clusters, the last one not full, with resets and the states of all steps, which no trial has."""
    if DEVICE != "cpu" and torch.cuda.get_device_capability()[0] < cluster.CAPABILITY:
        pytest.skip("a GPU below compute capability 9 has no clusters of thread blocks")
    model = cell_models.model(name, 3, 44).to(DEVICE)
    state = [type(s)(*(v.to(DEVICE) for v in s)) for s in some_state(model, 11)]
    x, dt = torch.randn(9, 11, 3, device=DEVICE), 2.0 * torch.rand(9, 11, device=DEVICE)
    mask, reset = torch.rand(9, 11, device=DEVICE) < 0.7, torch.rand(9, 11, device=DEVICE) < 0.2
    compare("cluster", model, x, state, dt, mask, tolerance=BOUNDS["highest"])
    compare("cluster", model, x, state, dt, mask, reset=reset, states=True, tolerance=BOUNDS["highest"])


@only_gpu
@pytest.mark.parametrize("name", ["lstm", "plstm", "gru", "gated_lstm_om_4", "odd"])
def test_kernels_pass_their_trial(name):
    device = torch.empty(0, device=DEVICE).device
    cell = cell_models.model(name, 3, 44).layers[0].to(device)
    assert graph.trial(cell, of_cell(cell, timed=False), device) is None


@only_gpu
def test_auto_takes_them():
    for name, make in MODELS.items():
        model = make(3, 8).to(DEVICE)
        x = torch.randn(5, 2, 3, device=DEVICE)
        assert engines.pick("auto", model.layers[0], x) is not eager.run, name


def test_live_calls_have_buffers_of_their_own():
    S, B, inputs, H = next(iter(SIZES.values()))
    model = PLSTM(inputs, H, engine="graph").to(DEVICE)
    batches = [torch.randn(s, B, inputs, device=DEVICE) for s in (S, S, S // 2, S, S, S // 2)]

    def gradients(chosen):
        losses = [model(x)[0].square().mean() for x in chosen]
        return [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]

    alone = [gradients([x])[0] for x in batches]
    for _ in range(2):
        for grads, wanted in zip(gradients(batches), alone, strict=True):
            for a, b in zip(grads, wanted, strict=True):
                close(a, b)


def test_replicas_equal_single_calls():
    S, B, inputs, H = next(iter(SIZES.values()))
    cells = [PLSTM(inputs, H).to(DEVICE).layers[0] for _ in range(4)]
    cell = batched_seeds(cells)
    x = torch.randn(S, 4, B, inputs, device=DEVICE)
    for _ in range(3):
        output, _ = graph.run(cell, x, cell.weights(), cell.initial_state(4, B))
    for r, one in enumerate(cells):
        close(output[:, r], graph.run(one, x[:, r], one.weights(), one.initial_state(B))[0])


@pytest.mark.parametrize("model", ["lstm", "plstm"])
def test_captured_training_steps_equal_launched_ones(model, monkeypatch, capsys):
    """Rehearsed on a CPU, nothing is captured."""
    curves, made = [], []
    real = graphs.StepGraph
    monkeypatch.setattr(graphs, "StepGraph", lambda *a: made.append(a) or real(*a))
    for captured in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if not captured:
                patch.setattr(graphs, "is_wanted", lambda *a: False)
            network, job, optimizer = build.build(config(DEVICE, f"model={model}"))
            run = TrainingRun(network, job, optimizer, lambda *a: None, LoopSettings(max_epochs=4, clip_norm=1.0), None)
            loop.fit_single(run)
            curves.append([row["valid/loss"] for row in run.progress.curve])
    assert "no CUDA graph" not in capsys.readouterr().err
    assert len(made) == ON_GPU
    assert curves[1] == pytest.approx(curves[0], rel=1e-3)


@pytest.mark.parametrize("model", ["lstm", "plstm"])
def test_batched_seeds_equal_single_runs(model, tmp_path, monkeypatch, capsys):
    """On the graph engine; the seeds leave one after the other."""
    monkeypatch.setattr(Copy, "stop", lambda self, epoch, found: "solved" if epoch >= self.seed + 1 else None)
    overrides = [
        *trainings.COPY,
        f"model={model}",
        "engine=graph",
        f"device={DEVICE}",
        "loop.max_epochs=4",
        "optimizer=sgd",
    ]
    kinds = (trainings.single, trainings.batched)
    runs = [train(overrides, tmp_path / train.__name__, (0, 1, 2), double=False) for train in kinds]
    assert "one after another" not in capsys.readouterr().err
    trainings.same(*runs, 1e-4)
    assert [run.progress.step for run in runs[1]] == [5, 10, 15]


@only_gpu
def test_random_numbers_after_a_capture_that_failed():
    found = of_cell(LSTM(3, 4).layers[0], timed=False)
    b = Buffers(found, (1, 2, 3), 4, torch.device(DEVICE), False, False)

    def fails(given):
        if given is b:
            given.z.sum().item()  # waits for the GPU: not permitted in a capture

    with pytest.raises(RuntimeError):
        capture.graph_of(b, fails)
    assert torch.rand(1, device=DEVICE).isfinite().all()
    model, x = PLSTM(3, 8, engine="graph").to(DEVICE), torch.randn(5, 2, 3, device=DEVICE)
    for _ in range(3):
        model(x)[0].sum().backward()


@pytest.mark.parametrize("model", ["lstm", "plstm"])
@pytest.mark.parametrize("task", ["copy", "frequency"])
def test_deterministic_runs_are_bitwise_equal(model, task, tmp_path):
    def fit(folder):
        (tmp_path / folder).mkdir()
        chosen = config(DEVICE, f"model={model}", "deterministic=true", task=task)
        network, job, optimizer = build.build(chosen)
        curve = trainings.fit(
            network, job, optimizer, lambda v, s: None, LoopSettings(max_epochs=2), tmp_path / folder
        ).progress.curve
        return curve, [p.detach().clone() for p in network.parameters()]

    (curve, weights), (again, same) = fit("one"), fit("two")
    assert curve == again
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))


def allocated():
    gc.collect()
    return torch.cuda.memory_allocated() if ON_GPU else 0


def test_memory_is_flat_over_many_steps(tmp_path):
    steps, seen = (10_000 if ON_GPU else 60), {}
    network, job, optimizer = build.build(config(DEVICE, "model=plstm", "task.train_size=1600"))

    def log(values, step):
        if step % (steps // 10) == 0:
            seen[step] = allocated()

    trainings.fit(
        network, job, optimizer, log, LoopSettings(max_epochs=10**6, max_steps=steps, eval_every=10**9), tmp_path
    )
    assert len(seen) == 10
    assert len({round(value / 2**20) for value in list(seen.values())[1:]}) == 1, seen


def test_a_failed_job_leaves_nothing_on_the_device(tmp_path):
    def fail(folder, at):
        network, job, optimizer = build.build(config(DEVICE, "model=plstm", "model.hidden_size=256"))

        def log(values, step):
            if step == at:
                raise RuntimeError("as a job fails")

        (tmp_path / folder).mkdir()
        with pytest.raises(RuntimeError, match="as a job fails"):
            trainings.fit(network, job, optimizer, log, LoopSettings(max_epochs=1), tmp_path / folder)

    fail("first", 6)  # what the libraries keep, they keep from here on
    before = allocated()
    fail("second", 6)
    assert allocated() <= before


@only_gpu
@pytest.mark.parametrize("model", ["lstm", "plstm"])
@pytest.mark.parametrize("task", ["copy", "frequency"])
def test_no_step_waits_for_the_gpu(model, task, tmp_path):
    """From the fourth to the ninth step nothing synchronises: data, model, loss, backward, clipping, optimizer."""
    network, job, optimizer = build.build(
        config(DEVICE, f"model={model}", "task.sampling=sync_1" if task == "frequency" else "task.T=8", task=task)
    )

    def log(values, step):
        torch.cuda.set_sync_debug_mode("error" if 3 <= step < 9 else "default")

    try:
        trainings.fit(network, job, optimizer, log, LoopSettings(max_steps=10, eval_every=10), tmp_path)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@only_gpu
@pytest.mark.parametrize("make", [LSTM, PLSTM])
def test_the_whole_training_step_can_be_captured(make):
    """Forward, backward, clipping and optimizer in one graph: three replays equal three steps."""
    job = Copy(T=20, batch_size=16, train_size=64, valid_size=16, test_size=16, device=DEVICE)
    batch = next(job.batches("train"))
    weights = []
    for captured in (False, True):
        torch.manual_seed(0)
        network = SequenceModel(make(10, 32, engine="graph"), job.spec).to(DEVICE)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, capturable=True)

        def step(network=network, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=True)
            job.loss(network(batch).logits, batch).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        if captured:
            whole = torch.cuda.CUDAGraph()
            with torch.cuda.graph(whole):
                step()
        for _ in range(3):
            whole.replay() if captured else step()
        weights.append([p.detach().clone() for p in network.parameters()])
    for a, b in zip(*weights, strict=True):
        close(b, a, 1e-3)
