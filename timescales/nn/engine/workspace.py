"""Memory that the fused engine keeps from a forward call for its backward call."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import mmap

KEPT = 8  # if more unused memories than this are kept, the largest is returned to the system

# Unused memory with its address. There is no lock: the garbage collector may call `Workspace.__del__` at any time, also
# in a thread that would hold it. A deque's `append` and `popleft` are atomic.
_unused: collections.deque[tuple[mmap.mmap, int]] = collections.deque()


class Workspace:
    """Memory for `floats` numbers. A call owns its workspace until `release`.

    New memory of this size causes page faults each time, up to a quarter of the time of a training step. So released
    memory is kept for the next call.
    """

    _memory: tuple[mmap.mmap, int] | None = None  # a class attribute: torch.compile makes objects without __init__

    def __init__(self, floats: int) -> None:
        size = 4 * floats
        self._memory = _take_unused(size) or _new_memory(size)

    @property
    def address(self) -> int:
        """Address of the memory."""
        assert self._memory is not None, "the workspace was released"
        return self._memory[1]

    def release(self) -> None:
        """Give the memory back for the next call."""
        memory, self._memory = self._memory, None
        if memory is not None:
            _unused.append(memory)
            if len(_unused) > KEPT:
                _drop_largest()

    def __del__(self) -> None:
        self.release()


def free_memory() -> None:
    """Return the unused memory of the C++ engine to the system.

    The engine keeps the memory of finished calls for later calls, up to 8 pieces. Call this after a large computation
    that will not be repeated. It is safe at any time: memory that a later backward pass needs is not freed.
    """
    _unused.clear()


def _take_unused(size: int) -> tuple[mmap.mmap, int] | None:
    """The smallest unused memory that is large enough, but not one that is much too large; None if there is none."""
    pieces = _take_all()
    fits = [piece for piece in pieces if size <= len(piece[0]) <= 4 * size + (1 << 20)]
    best = min(fits, key=lambda piece: len(piece[0]), default=None)
    _unused.extend(piece for piece in pieces if piece is not best)
    return best


def _drop_largest() -> None:
    pieces = _take_all()
    largest = max(pieces, key=lambda piece: len(piece[0]), default=None)
    _unused.extend(piece for piece in pieces if piece is not largest)


def _take_all() -> list[tuple[mmap.mmap, int]]:
    pieces = []
    with contextlib.suppress(IndexError):  # another thread took the last
        while _unused:
            pieces.append(_unused.popleft())
    return pieces


def _new_memory(size: int) -> tuple[mmap.mmap, int]:
    # Private: a forked process and its parent would use the same memory of a shared mapping.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))
