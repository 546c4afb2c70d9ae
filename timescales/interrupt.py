"""Ctrl-C and SIGTERM end a training between two steps, with everything saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Turns SIGINT and SIGTERM into a request that the loop meets between two steps; a second one is not held back.

    Inside another one (several runs side by side) it is that one: all of them meet the same request.
    """

    requested = False

    def __enter__(self) -> Interrupt:
        self.before: dict[int, Any] = {}
        outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(outer, Interrupt):
            return outer
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
