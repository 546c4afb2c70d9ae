"""The compilation of the fused engine: cache, damaged files, compilers and their flags."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from quick import ends_well_in_a_fork

from timescales import LSTM, PLSTM
from timescales.nn.engine.cpu import compiler as compilers
from timescales.nn.engine.cpu import shared_library

RUN = """
import sys
import torch
from timescales import PLSTM
torch.manual_seed(0)
model = PLSTM(3, 5)
model(torch.ones(4, 2, 3))[0].sum().backward()
assert "sympy" not in sys.modules  # some functions of torch import it, which takes long
print(round(model(torch.ones(4, 2, 3))[0].sum().item(), 4), round(model(torch.ones(4, 2, 3))[0].sum().item(), 4))
"""


def python(cache: Path, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", RUN], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_build_shared_by_processes_and_repaired(tmp_path):
    """Two processes at once compile once; a damaged library is compiled again, a whole one is not."""
    both = [python(tmp_path), python(tmp_path)]
    (a, said_a), (b, said_b) = (p.communicate() for p in both)
    assert [p.returncode for p in both] == [0, 0], said_a + said_b
    assert a == b
    assert (said_a + said_b).count("compiling PLSTMCell") == 1
    (library,) = (tmp_path / "timescales").glob("*.so")

    for damaged in (library, *(tmp_path / "timescales").glob("products-*.o")):
        damaged.write_bytes(damaged.read_bytes()[:20_000])
    again, said = python(tmp_path).communicate()
    assert again == a, said
    assert said.count("compiling PLSTMCell") == 1
    assert python(tmp_path).communicate() == (a, "")
    kept = sorted((tmp_path / "timescales").iterdir())
    names = [f"{p.name.split('-')[0]}{p.suffix}" for p in kept]
    assert names == ["cell.lock", "cell.so", "products.lock", "products.o"]


def test_a_library_is_of_its_source_flags_compiler_and_processor(tmp_path, monkeypatch):
    """A cache may be shared by machines of several kinds: what one can run, another may not."""
    monkeypatch.setattr(compilers, "cache_dir", lambda: tmp_path)
    empty = hashlib.sha256(b"").digest()
    monkeypatch.setattr(compilers, "write_compiled", lambda file, compiler, arguments: file.write_bytes(empty))
    (tmp_path / "other.cpp").touch()
    headers = tmp_path / "headers"
    headers.mkdir()
    for file in compilers.PRODUCTS.parent.glob("*.h"):
        shutil.copy(file, headers)
    (headers / "products.cpp").touch()
    names = [shared_library.build(code, "Mine") for code in ("code", "code", "other code")]
    changes = {"FLAGS": ("-O2",), "processor": lambda: "another", "find_compiler": lambda: ["true"]}
    changes["PRODUCTS"] = headers / "products.cpp"
    for name, value in changes.items():
        with monkeypatch.context() as changed:
            changed.setattr(compilers, name, value)
            names.append(shared_library.build("code", "Mine"))
    monkeypatch.setattr(shared_library, "LOOP", tmp_path / "other.cpp")
    names.append(shared_library.build("code", "Mine"))
    assert [names.index(name) for name in names] == [0, 0, 2, 3, 4, 5, 6, 7]


def test_the_matrix_products_are_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setattr(compilers, "cache_dir", lambda: tmp_path)
    commands = []

    def write(file, compiler, arguments):
        commands.append(arguments)
        file.write_bytes(hashlib.sha256(b"").digest())

    monkeypatch.setattr(compilers, "write_compiled", write)
    for code in ("code", "other code"):
        shared_library.build(code, "Mine")
    (products,) = tmp_path.glob("*.o")
    assert [arguments[-1] for arguments in commands] == [str(compilers.PRODUCTS), str(products), str(products)]


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "reason"), [("no-such-compiler", "not on the path"), ("false", "failed")])
def test_without_a_compiler(tmp_path, compiler, reason):
    """Eager, with one line that says why."""
    process = python(tmp_path, CXX=compiler)
    out, said = process.communicate()
    assert process.returncode == 0, said
    assert said.count("runs on the eager engine, which is slower") == 1
    assert reason in said
    torch.manual_seed(0)
    model = PLSTM(3, 5, engine="eager")
    assert float(out.split()[0]) == pytest.approx(model(torch.ones(4, 2, 3))[0].sum().item(), abs=2e-4)


@pytest.mark.slow
def test_a_cache_is_used_without_a_compiler(tmp_path):
    """As where one machine builds and another one, without a compiler, runs. Only a whole library is used."""
    built, _ = python(tmp_path).communicate()
    assert python(tmp_path, CXX="no-such-compiler").communicate() == (built, "")
    (library,) = (tmp_path / "timescales").glob("*.so")
    library.write_bytes(library.read_bytes()[:20_000])
    _, said = python(tmp_path, CXX="no-such-compiler").communicate()
    assert "no-such-compiler is not on the path; engine='eager' silences this" in said


def test_a_library_of_any_compiler_is_of_its_source_flags_and_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(compilers, "cache_dir", lambda: tmp_path)
    assert compilers.of_any_compiler("code") is None
    digest = hashlib.sha256(b"").digest()
    older, newer = (compilers.in_cache("code", [name], lambda f: f.write_bytes(digest)) for name in ("true", "echo"))
    assert older != newer
    os.utime(older, (1, 1))
    assert compilers.of_any_compiler("code") == newer
    newer.write_bytes(b"damaged")
    assert compilers.of_any_compiler("code") == older
    assert compilers.of_any_compiler("other code") is None
    for name, value in {"FLAGS": ("-O2",), "processor": lambda: "another"}.items():
        with monkeypatch.context() as changed:
            changed.setattr(compilers, name, value)
            assert compilers.of_any_compiler("code") is None


def test_a_failed_compilation_is_not_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compilers, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(shared_library, "LOADED", {})
    monkeypatch.setattr(compilers, "FAILED", {})
    monkeypatch.setenv("CXX", "false")
    for _ in range(3):
        with pytest.raises(ValueError, match="cannot run here: false failed: it gave no reason"):
            PLSTM(3, 4, engine="fused")(torch.randn(2, 2, 3))
    assert capsys.readouterr().err.count("compiling PLSTMCell with false") == 1
    monkeypatch.setenv("CXX", "true")  # another compiler is tried
    with pytest.raises(ValueError, match="cannot run here: "):
        PLSTM(3, 4, engine="fused")(torch.randn(2, 2, 3))
    assert capsys.readouterr().err.count("compiling PLSTMCell with true") == 1


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path):
    (tmp_path / "timescales").touch()  # a file where the directory would be: root, too, cannot write there
    _, said = python(tmp_path).communicate()
    assert "runs on the eager engine, which is slower: " in said
    assert "; XDG_CACHE_HOME=DIRECTORY moves the cache of compiled layers; engine='eager' silences this" in said


def program(folder, script):
    """Write a shell script that stands for a compiler; its path."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script.strip()}\n")
    path.chmod(0o755)
    return str(path)


UNKNOWN = [((), 2), (("-fopenmp",), 1), (("-fopenmp", "-march=native"), 0)]


@pytest.mark.parametrize(("unknown", "kept"), UNKNOWN, ids=str)
def test_a_compiler_is_spared_only_the_flags_it_does_not_know(tmp_path, unknown, kept):
    refused = "|".join(unknown) or "none"
    compiler = program(tmp_path, f"""
for word; do case $word in {refused}) echo "error: unknown flag $word" >&2; exit 1;; esac; out=$word; done
echo "$@" > "$out"
""")  # fmt: skip
    compilers.write_compiled(tmp_path / "cell.so", [compiler], [])
    used = (tmp_path / "cell.so").read_bytes()[:-32].decode().split()
    assert [flag in used for flag in ("-fopenmp", "-march=native")].count(True) == kept
    assert not set(unknown) & set(used)


def test_a_full_disk_does_not_leave_a_library_with_fewer_flags(tmp_path):
    """It is another library, with other sums: a run that continues on a larger disk would differ in the last bits."""
    compiler = program(tmp_path, """
for word; do case $word in -march=native) native=1;; esac; out=$word; done
case $out in *probe.so) ;; *) test -z "$native" || { echo "fatal error: No space left on device" >&2; exit 1; };; esac
echo "$@" > "$out"
""")  # fmt: skip
    with pytest.raises(compilers.BuildError, match="No space left"):
        compilers.write_compiled(tmp_path / "cell.so", [compiler], [])
    assert not (tmp_path / "cell.so").exists()


EMPTY_FILE = 'for word; do out=$word; done; case $out in /*) : > "$out";; esac'


@pytest.mark.parametrize("does", ["exit 0", EMPTY_FILE], ids=["nothing", "an empty file"])
def test_a_compiler_that_succeeds_and_writes_nothing_is_named(tmp_path, monkeypatch, does):
    compiler = program(tmp_path, does)
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(compilers, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(shared_library, "LOADED", {})
    reason = rf"{compiler} reported success and wrote nothing: set CXX to a C\+\+ compiler"
    with pytest.raises(ValueError, match=rf"cannot run here: {reason}"):
        LSTM(3, 4, engine="fused")(torch.randn(2, 2, 3))
    with pytest.warns(UserWarning, match=rf"runs on the eager engine, which is slower: {reason}"):
        LSTM(3, 4)(torch.randn(2, 2, 3))


def test_a_compiler_that_a_signal_ends_has_refused_no_flag(tmp_path):
    """As a Ctrl-C does, which reaches the compiler, too, and need not end this process."""
    calls = tmp_path / "calls"
    compiler = program(tmp_path, f'echo >> {calls}\ntest "$(wc -l < {calls})" = 1 && kill -INT $$\nexit 0')
    with pytest.raises(compilers.Stopped, match="ended by signal 2"):
        compilers.write_compiled(tmp_path / "cell.so", [compiler], [])
    assert calls.read_text() == "\n"
    assert compilers.accepted_flags(compiler) == [*compilers.FLAGS]  # it is asked again


def test_a_forked_process_runs_the_loaded_kernels():
    """As data loaders and launchers have them."""
    model, x = PLSTM(3, 5, engine="fused"), torch.randn(4, 2, 3)
    expected = model(x)[0]
    model(x)[0].sum().backward()

    def again():
        output = model(x)[0]
        output.sum().backward()
        assert torch.equal(output, expected)

    assert ends_well_in_a_fork(again)
