"""Memory that the fused engine keeps from a forward call for its backward call."""

from __future__ import annotations

import ctypes
import mmap
import threading


class Workspace:
    """Memory for `floats` numbers. A call owns its workspace until `release`.

    New memory of this size causes page faults each time, up to a quarter of the time of a training step. So released
    memory is kept for the next call.
    """

    _free: list[tuple[mmap.mmap, int]] = []  # memory and its address
    _lock = threading.Lock()
    _memory: tuple[mmap.mmap, int] | None = None  # a class attribute: torch.compile makes objects without __init__
    KEPT = 8  # if more free memories than this are kept, the smallest is returned to the system

    def __init__(self, floats: int) -> None:
        size = 4 * floats
        with self._lock:
            # The smallest that is large enough, but not one that is much too large.
            fits = [pair for pair in self._free if size <= len(pair[0]) <= 4 * size + (1 << 20)]
            best = min(fits, key=lambda pair: len(pair[0]), default=None)
            if best is not None:
                self._free.remove(best)
        self._memory = _new_memory(size) if best is None else best

    @property
    def address(self) -> int:
        """Address of the memory."""
        assert self._memory is not None, "the workspace was released"
        return self._memory[1]

    def release(self) -> None:
        """Give the memory back for the next call."""
        memory, self._memory = self._memory, None
        if memory is not None:
            with self._lock:
                self._free.append(memory)
                if len(self._free) > self.KEPT:
                    self._free.remove(min(self._free, key=lambda pair: len(pair[0])))

    def __del__(self) -> None:
        self.release()


def _new_memory(size: int) -> tuple[mmap.mmap, int]:
    # Private: a forked process and its parent would use the same memory of a shared mapping.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))
