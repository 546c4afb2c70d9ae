"""Find the system's C++ compiler, compile libraries, and keep them in the user's cache directory."""

import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from timescales.files import cache_dir, make_folder

COMPILERS = ("g++", "c++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared")
PROBE = """
#ifdef _OPENMP
#include <omp.h>
#endif
void twice(float* x, long n) { for (long i = 0; i < n; i++) x[i] = x[i] * 2.0f + 1.0f; }
"""
PRODUCTS = Path(__file__).with_name("products.cpp")  # the matrix products, which all libraries share


class BuildError(Exception):
    """A library cannot be built. The message is one line with the reason."""


class Stopped(BuildError):
    """A signal ended the compiler, so it is unknown which flags it would have accepted."""


FAILED: dict[Path, str] = {}  # libraries that could not be compiled in this process, with the reason


def in_cache(
    source: str, compiler: list[str], compile_file: Callable[[Path], None], kind: str = "cell", suffix: str = ".so"
) -> Path:
    """Return the file of a library, or of another `kind` of compiled code, in the user's cache.

    If the file is missing or damaged, `compile_file` writes it.

    The file name has a hash of the ingredients of the library (see `of_any_compiler`) and one of the compiler. The last
    32 bytes of the file are the SHA-256 of the others, so a damaged file is detected before it is loaded. If several
    processes need the library at the same time, one compiles it and the others wait. A compilation that failed is not
    tried again.
    """
    directory, made_of = cache_dir(), _hash(*_ingredients(source))
    file = directory / f"{kind}-{made_of}-{_hash(*compiler, version(*compiler))}{suffix}"
    if file in FAILED:
        raise BuildError(FAILED[file])
    if is_whole(file):
        return file
    try:
        make_folder(directory)
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_whole(file):
                compile_file(file)
    except OSError as error:
        raise BuildError(f"{error}; XDG_CACHE_HOME=DIRECTORY moves the cache of compiled layers") from None
    except BuildError as error:
        FAILED[file] = str(error)
        raise
    return file


def of_any_compiler(source: str) -> Path | None:
    """Return the newest undamaged library in the cache for a source, made by any compiler, or None.

    It has the same source, products, headers and flags, and was compiled for the same processor.
    """
    files = cache_dir().glob(f"cell-{_hash(*_ingredients(source))}-*.so")
    return max(filter(is_whole, files), key=lambda file: file.stat().st_mtime, default=None)


def _ingredients(source: str) -> list[str]:
    """Return what determines a library besides the compiler: source, shared code, flags and processor."""
    shared = [file.read_text() for file in (*sorted(PRODUCTS.parent.glob("*.h")), PRODUCTS)]
    return [source, *shared, *FLAGS, processor()]


def _hash(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler: $CXX, which may include arguments, or the first of COMPILERS on the path.

    Raises BuildError if there is none.
    """
    if command := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(command[0]):
            return command
        raise BuildError(f"CXX={os.environ['CXX']} is not on the path")
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise BuildError(f"no C++ compiler found ({', '.join(COMPILERS)}); install one or set CXX")


@functools.cache
def version(*compiler: str) -> str:
    """Return the compiler's own description of its version."""
    return subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout


@functools.cache
def processor() -> str:
    """Return what -march=native depends on: machines with different processors may share a cache directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def is_whole(file: Path) -> bool:
    """Return whether a compiled file exists and is not damaged: its last 32 bytes are the hash of the rest."""
    if not file.exists():
        return False
    data = file.read_bytes()
    return hashlib.sha256(data[:-32]).digest() == data[-32:]


def products(compiler: list[str]) -> Path:
    """Return the compiled matrix products in the cache. With them a library takes half the time to compile."""
    arguments = ["-c", str(PRODUCTS)]
    return in_cache("", compiler, lambda file: write_compiled(file, compiler, arguments), "products", ".o")


def write_compiled(file: Path, compiler: list[str], arguments: list[str]) -> None:
    """Compile with these arguments and move the result to `file`. Raises BuildError with the compiler's first error."""
    # Remove directories of processes that were killed. The caller holds the lock, so no other process compiles.
    for abandoned in file.parent.glob(f"{file.stem}.*.build"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f"{file.stem}.", suffix=".build") as scratch:
        compiled = Path(scratch) / file.name
        run(compiler, [*accepted_flags(*compiler), *arguments, "-o", str(compiled)])
        data = compiled.read_bytes() if compiled.is_file() else b""
        if not data:
            raise BuildError(f"{compiler[0]} reported success and wrote nothing: set CXX to a C++ compiler")
        compiled.write_bytes(data + hashlib.sha256(data).digest())
        os.replace(compiled, file)


@functools.cache
def accepted_flags(*compiler: str) -> list[str]:
    """Return as many of FLAGS as the compiler accepts.

    A compilation that fails for another reason, such as a full disk, is not repeated with fewer flags. The smaller
    library might fit, and later libraries would then be built with fewer flags too.
    """
    with tempfile.TemporaryDirectory() as scratch:
        # Without -fopenmp the engine uses one thread; without -march=native it uses narrow vectors.
        for omitted in ((), ("-fopenmp",), ("-march=native",), ("-fopenmp", "-march=native")):
            flags = [flag for flag in FLAGS if flag not in omitted]
            try:
                run([*compiler], [*flags, "-x", "c++", "-", "-o", f"{scratch}/probe.so"], PROBE)
            except Stopped:
                raise
            except BuildError as error:
                refused = error
            else:
                return flags
    raise refused


def run(compiler: list[str], arguments: list[str], source: str = "") -> None:
    """Run the compiler, with `source` as its standard input. Raises BuildError with its first error.

    Raises Stopped if a signal ended the compiler, such as a Ctrl-C, which reaches the compiler too.
    """
    result = subprocess.run([*compiler, *arguments], input=source, capture_output=True, text=True, check=False)
    if result.returncode < 0:
        raise Stopped(f"{compiler[0]} was ended by signal {-result.returncode}")
    if result.returncode != 0:
        reason = next((line for line in result.stderr.splitlines() if "error" in line), "it gave no reason")
        raise BuildError(f"{compiler[0]} failed: {reason}")
