"""Memory that the fused engine keeps from a forward call for its backward call."""

import collections
import ctypes
import mmap


class Workspace:
    """Memory for `floats` numbers, which forward keeps for backward. A call owns its workspace until `release`.

    New memory of this size causes page faults each time, up to a quarter of the time of a training step. So released
    memory is reused for the next call.

    There is no lock: the garbage collector may call `__del__` at any time, even in the thread that would hold the lock.
    The `append` and `popleft` of a deque are atomic. At the process's end `__del__` cannot read the module's names.
    """

    _unused: collections.deque[tuple[mmap.mmap, int]] = collections.deque()  # memory and its address
    _memory: tuple[mmap.mmap, int] | None = None  # a class attribute: torch.compile makes objects without __init__
    MAX_UNUSED = 8  # with more unused pieces of memory than this, the largest is returned to the system

    def __init__(self, floats: int) -> None:
        size = 4 * floats
        self._memory = self._take_unused(size) or _new_memory(size)

    @property
    def address(self) -> int:
        """Return the address of the memory."""
        assert self._memory is not None, "the workspace was released"
        return self._memory[1]

    def release(self) -> None:
        """Give the memory back for the next call."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self._unused.append(memory)
            if len(self._unused) > self.MAX_UNUSED:
                pieces = self._take_all()
                largest = max(pieces, key=lambda piece: len(piece[0]), default=None)
                self._unused.extend(piece for piece in pieces if piece is not largest)

    def __del__(self) -> None:
        self.release()

    @classmethod
    def _take_unused(cls, size: int) -> tuple[mmap.mmap, int] | None:
        """Take the smallest unused memory that is large enough and not much too large. Return None if there is none."""
        pieces = cls._take_all()
        fits = [piece for piece in pieces if size <= len(piece[0]) <= 4 * size + (1 << 20)]
        best = min(fits, key=lambda piece: len(piece[0]), default=None)
        cls._unused.extend(piece for piece in pieces if piece is not best)
        return best

    @classmethod
    def _take_all(cls) -> list[tuple[mmap.mmap, int]]:
        pieces = []
        try:
            while cls._unused:
                pieces.append(cls._unused.popleft())
        except IndexError:  # another thread took the last
            pass
        return pieces


def free_memory() -> None:
    """Return the unused memory of the C++ engine to the system.

    The engine keeps the memory of finished calls for later calls, up to 8 pieces. Call this after a large computation
    that will not be repeated. It is safe at any time: memory that a later backward pass needs is not freed.
    """
    Workspace._unused.clear()


def _new_memory(size: int) -> tuple[mmap.mmap, int]:
    # Private, since a forked process and its parent would write to the same memory of a shared mapping.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))
