"""Ctrl-C, SIGTERM, SIGHUP and a cluster's warning end a training between two steps, with everything saved."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# Sent by a sweep's process to its workers. A worker may have got the user's signal, too: this one never counts as a
# second signal.
PASSED_ON = signal.SIGUSR1
PATIENCE = 2.0  # seconds that a batch may take after a second signal, before it is cut off
STOPPING = "Stopping: finishing this batch, then saving. Press Ctrl-C again to quit without saving."
ENDS_AT_ONCE = "Stopped; what was not saved yet is lost. Run the same command to continue."


class Requested(KeyboardInterrupt):
    """An evaluation has ended between two batches, because a signal came."""


class Interrupt:
    """Turns signals into a request that the loop meets between two steps or batches; a second one interrupts at once.

    Inside another Interrupt, such as a worker's, the outer one is used, so that a run meets a request to its worker.
    A thread acknowledges the first signal at once, although Python's handlers wait until a batch in C++ has ended. It
    also ends the process if a second signal has waited in this way for two seconds.
    In a job of submitit, which has a handler for SIGUSR2 that requeues the job when its time is over, SIGUSR2 is held
    back instead, and raised again when all is saved. SIGTERM is then left to submitit: it comes before SIGUSR2, and a
    job that ended at it would not be requeued.

    on_request: called once, when the first signal comes.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.on_request = on_request
        self.requested = 0  # the first signal
        self.handled = 0  # signals so far, except for PASSED_ON
        self.handlers: dict[int, Any] = {}  # of before, by signal

    def __enter__(self) -> Interrupt:
        outer = active()
        if outer is not None:
            return outer
        if threading.current_thread() is threading.main_thread():
            for number in caught():
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
        """Print that a signal has come; the thread's function."""
        signals = 0
        while number := os.read(self.reader, 1)[0]:
            if number not in self.handlers or number == PASSED_ON:
                continue
            signals += 1
            if signals == 1:
                say(STOPPING)
            elif signals > 1 and not self.ended.wait(PATIENCE) and self.handled < 2:
                say(ENDS_AT_ONCE)
                os._exit(130)


def caught() -> list[signal.Signals]:
    """Return the signals that an Interrupt catches; SIGHUP stays ignored under nohup."""
    warned = callable(signal.getsignal(signal.SIGUSR2))  # by submitit
    numbers = [signal.SIGINT, signal.SIGUSR2 if warned else signal.SIGTERM, PASSED_ON]
    return numbers if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*numbers, signal.SIGHUP]


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
    with contextlib.suppress(OSError, ValueError):  # nobody reads it
        print(f"\n{line}", file=sys.stderr, flush=True)
