"""Ctrl-C, SIGTERM and a cluster's warning end a training between two steps, with everything saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Turns SIGINT and SIGTERM into a request that the loop meets between two steps; a second one interrupts at once.

    Inside another Interrupt (several runs side by side) the outer one is used, so that all runs meet the same request.
    In a job of submitit, which has a handler for SIGUSR2 that requeues the job when its time is over, SIGUSR2 is held
    back instead, and raised again when all is saved. SIGTERM is then left to submitit: it comes before SIGUSR2, and a
    job that ended at it would not be requeued.
    """

    requested = 0  # the signal

    def __enter__(self) -> Interrupt:
        self.before: dict[int, Any] = {}
        outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(outer, Interrupt):
            return outer
        if threading.current_thread() is threading.main_thread():
            warned = callable(signal.getsignal(signal.SIGUSR2))
            for number in (signal.SIGINT, signal.SIGUSR2 if warned else signal.SIGTERM):
                self.before[number] = signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = number

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if self.before and self.requested == signal.SIGUSR2:
            signal.raise_signal(signal.SIGUSR2)
