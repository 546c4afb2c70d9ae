"""End a training between two steps, with everything saved, at Ctrl-C, SIGTERM, SIGHUP or a cluster's warning."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# The process of a sweep sends this signal to its workers. A worker may have got the user's signal too, so this one
# never counts as a second signal.
PASSED_ON = signal.SIGUSR1
PATIENCE = 2.0  # seconds that a batch may still take after a second signal, before the process ends


class Requested(KeyboardInterrupt):
    """Raised between two batches of an evaluation, because a signal has come."""


class Interrupt:
    """Turn a signal into a request to stop, which the training loop reads between two steps or batches.

    A second signal interrupts at once. If Interrupts are nested, as a run's is inside its worker's, only the outer one
    catches signals.

    Python's handlers wait until a batch in C++ has ended. So a thread prints at once that the first signal has come. It
    also ends the process if a second signal has waited for PATIENCE seconds.

    In a job of submitit, SIGUSR2 says that the job's time is over, and submitit's handler requeues the job. Here the
    signal is held back, and raised again when everything is saved. SIGTERM is left to submitit then: it comes before
    SIGUSR2, and a job that it ended would not be requeued.

    on_request: called once, at the first signal.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.on_request = on_request
        self.requested = 0  # the number of the first signal
        self.handled = 0  # signals so far, except for PASSED_ON
        self.handlers: dict[int, Any] = {}  # the handlers from before, by signal

    def __enter__(self) -> Interrupt:
        outer = active()
        if outer is not None:
            return outer
        if threading.current_thread() is threading.main_thread():
            in_submitit = callable(signal.getsignal(signal.SIGUSR2))
            numbers = [signal.SIGINT, signal.SIGUSR2 if in_submitit else signal.SIGTERM, PASSED_ON]
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
                numbers.append(signal.SIGHUP)
            for number in numbers:
                self.handlers[number] = signal.signal(number, self._request)
            self.ended = threading.Event()
            self.reader, self.writer = os.pipe()
            os.set_blocking(self.writer, False)
            self.wakeup_before = signal.set_wakeup_fd(self.writer)  # each signal writes its number there
            self.thread = threading.Thread(target=self._acknowledge, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.handlers:
            return
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.wakeup_before)
        self.ended.set()
        os.write(self.writer, b"\0")
        self.thread.join()
        os.close(self.writer)
        os.close(self.reader)
        if self.requested == signal.SIGUSR2:
            signal.raise_signal(signal.SIGUSR2)

    def _request(self, number: int, frame: FrameType | None) -> None:
        first = not self.requested
        self.handled += number != PASSED_ON
        if first:
            self.requested = number
            self.on_request()
        if self.handled > 1:
            raise KeyboardInterrupt

    def _acknowledge(self) -> None:
        """Print that a signal has come, and end the process if a second one waits for too long. Runs in the thread."""
        signals = 0
        while number := os.read(self.reader, 1)[0]:
            if number not in self.handlers or number == PASSED_ON:
                continue
            signals += 1
            if signals == 1:
                say("Stopping: finishing this batch, then saving. Press Ctrl-C again to quit without saving.")
            elif signals > 1 and not self.ended.wait(PATIENCE) and self.handled < 2:
                say("Stopped without saving. Run the same command to continue.")
                os._exit(130)


def active() -> Interrupt | None:
    """Return the Interrupt that signals reach now."""
    owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return owner if isinstance(owner, Interrupt) else None


def raise_if_requested(place: str) -> None:
    """Raise Requested, which names the place, if a signal has come."""
    interrupt = active()
    if interrupt is not None and interrupt.requested:
        raise Requested(place)


def say(line: str) -> None:
    """Print a line to stderr, below a progress bar."""
    with contextlib.suppress(OSError, ValueError):  # the stream is closed
        print(f"\n{line}", file=sys.stderr, flush=True)
