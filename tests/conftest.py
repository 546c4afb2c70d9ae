import contextlib
import ctypes
import gc
import importlib
import io
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

# Before torch is loaded. Threads that wait sleep: where processes share the cores, to spin costs fifty times the time.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import composed_once  # noqa: F401  # what Hydra reads and composes again and again, it does once
import pytest
import synthetic
import texts

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
C = ctypes.CDLL(None)
gc.disable()  # until all tests are collected: it would look through all that is imported, again and again

# Also before torch is loaded. Tensors here are tiny: a second thread costs three times the time of the whole suite.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["WANDB_MODE"] = "offline"

# Children inherit an ignored signal, and a shell's background ignores Ctrl-C (`nohup make test &`). Tests send it to
# processes of their own, which must end by it.
for number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


LONGEST = ("test_loop.py", "test_call_shapes.py", "test_docs.py", "test_gpu.py")  # of the slow tests: minutes each


def pytest_collection_modifyitems(items):
    """The longest files come first: a worker that began one of them last would run alone to the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish():
    """A garbage collection takes seconds while it looks through all modules: from here on it does not."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def memory_of_a_module():
    """Given back to the system: the allocator keeps what is freed, hundreds of MB after all tests."""
    yield
    if hasattr(C, "malloc_trim"):
        C.malloc_trim(0)


@pytest.fixture(scope="module")
def own_objects():
    """Garbage collections of this module do not look through what other modules have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Nothing is read from or left in the user's cache of corpora."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        synthetic.stand_alone(monkeypatch, tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(autouse=True)
def own_wandb():
    """W&B puts the address of this process's service in the environment: a process that a later test starts would use
    it, and log nowhere once it has ended."""
    yield
    os.environ.pop("WANDB_SERVICE", None)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """A data root with small synthetic data sets."""
    return synthetic.write_corpora(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def text_root(tmp_path_factory):
    """A data root with the smallest texts of the corpora of language modelling."""
    return texts.write_texts(tmp_path_factory.mktemp("texts"))


class Outcome:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __repr__(self):
        return f"status {self.status}\n--- out\n{self.out}\n--- err\n{self.err}"


@pytest.fixture
def train(monkeypatch, tmp_path):
    """Call `python train.py ...` in this process, in an empty folder; an Outcome."""
    from hydra.core.global_hydra import GlobalHydra

    import train as entry

    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        monkeypatch.setattr(entry, "FULL", False)
        monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as train.py sets it for Hydra
        GlobalHydra.instance().clear()
        out, err, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
            try:
                entry.run()
            except SystemExit as leaving:
                status = leaving.code
            finally:
                for number, handler in before.items():  # a program that ends after an interruption ignores Ctrl-C
                    signal.signal(number, handler)
        return Outcome(status, out.getvalue(), err.getvalue())

    yield call
    for handler in [h for h in logging.root.handlers if type(h) is logging.FileHandler]:
        logging.root.removeHandler(handler)  # Hydra's: what other tests log would go into this one's folder
        handler.close()


@pytest.fixture
def train_process(tmp_path):
    """Start `python train.py ...` as a process of its own, in an empty folder."""

    def start(*arguments, **options):
        return subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"},
            **options,
        )

    return start


@pytest.fixture
def script(monkeypatch, capsys):
    """Call `python scripts/NAME.py ...` in this process, script(NAME, ...): what it prints, or its error."""

    def call(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        try:
            importlib.import_module(name).main()
        except SystemExit as leaving:
            return str(leaving.code) + capsys.readouterr().err
        return capsys.readouterr().out

    return call
