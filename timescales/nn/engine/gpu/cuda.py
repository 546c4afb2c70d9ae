"""CUDA C++ compiled while a program runs, by NVRTC, and launched through the driver, both by ctypes.

torch brings NVRTC, so neither a CUDA toolkit nor a C++ compiler is needed. Cubins are kept in the user's cache.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from timescales.files import cache_dir, write_atomic

OPTIONS = ("-default-device", "--ptxas-options=-v")
NVRTC_FOLDERS = ("nvidia/cu*/lib", "nvidia/cuda_nvrtc/lib")  # below a folder with packages


class CudaError(RuntimeError):
    """What NVRTC or the driver says, in one line."""


@functools.cache
def nvrtc() -> ctypes.CDLL:
    """The compiler: the one that torch's packages bring, or the system's. Raises CudaError if there is none."""
    for name in _names_of_nvrtc():
        for part in sorted(Path(name).parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(part))  # NVRTC opens it by its name alone, and finds it where it is loaded
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError("no NVRTC (libnvrtc.so) here; torch's CUDA packages bring it")


def _names_of_nvrtc() -> Iterator[str]:
    major = (torch.version.cuda or "").partition(".")[0]
    for path in sys.path:
        for folder in NVRTC_FOLDERS:
            found = sorted(Path(path or ".").glob(f"{folder}/libnvrtc.so.*"), reverse=True)
            yield from (str(file) for file in found if file.name.endswith(f".so.{major}") or not major)
    yield from (f"libnvrtc.so.{major}", "libnvrtc.so")


@functools.cache
def nvrtc_version() -> str:
    """The version of the compiler."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def cubin(code: str, architecture: str) -> bytes:
    """The machine code for an architecture such as sm_90, from the cache if it is there. Raises CudaError."""
    key = hashlib.sha256(repr((code, architecture, OPTIONS, nvrtc_version())).encode()).hexdigest()[:32]
    file = cache_dir() / f"cluster-{key}.cubin"
    if file.exists():
        data = file.read_bytes()
        if hashlib.sha256(data[:-32]).digest() == data[-32:]:
            return data[:-32]
    data, _ = compiled(code, architecture)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, data + hashlib.sha256(data).digest())
    except OSError as error:
        print(f"timescales: {error}; the kernel is compiled again next time", file=sys.stderr)
    return data


def compiled(code: str, architecture: str) -> tuple[bytes, str]:
    """The machine code, and what the compiler says: registers, spills and shared memory. Raises CudaError."""
    library, program = nvrtc(), ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in OPTIONS)]
    library.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"cluster.cu", 0, None, None)
    try:
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _text_of(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode().strip("\0")
        if status:
            first = next((line for line in log.splitlines() if "error" in line), f"status {status}")
            raise CudaError(f"NVRTC {nvrtc_version()} failed: {first}")
        return _text_of(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text_of(size_of: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    get(program, text)
    return text.raw


# ------------------------------------------------------------------------------------------ the driver


@functools.cache
def driver() -> ctypes.CDLL:
    """The driver's library, which torch has loaded where there is a GPU."""
    return ctypes.CDLL("libcuda.so.1")


def check(status: int, what: str) -> None:
    """Raise CudaError for a status of the driver that is not 0."""
    if status:
        name = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(name))
        raise CudaError(f"{what}: {(name.value or b'error').decode()} ({status})")


class Functions(NamedTuple):
    """The kernels of a cell, loaded on a device."""

    forward: ctypes.c_void_p
    backward: ctypes.c_void_p


@functools.cache
def functions(code: str, device: torch.device) -> Functions:
    """The kernels with this code on a device. They are compiled if they are not in the cache.

    The device's context must be current in this thread, as it is after any operation of torch on it.
    """
    major, minor = torch.cuda.get_device_capability(device)
    module, data = ctypes.c_void_p(), cubin(code, f"sm_{major}{minor}")
    check(driver().cuModuleLoadData(ctypes.byref(module), data), "cuModuleLoadData")
    found = []
    for name in Functions._fields:
        function = ctypes.c_void_p()
        check(driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()), "cuModuleGetFunction")
        found.append(function)
    return Functions(*found)


def launch(
    function: ctypes.c_void_p,
    arguments: ctypes.Array[ctypes.c_int64],
    grid: tuple[int, int],
    threads: int,
    stream: torch.cuda.Stream,
) -> None:
    """Launch a kernel that takes one struct by value. The size of its clusters is in its code."""
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
    handle = ctypes.c_void_p(stream.cuda_stream)
    status = driver().cuLaunchKernel(function, *grid, 1, threads, 1, 1, 0, handle, parameters, None)
    check(status, "cuLaunchKernel")
