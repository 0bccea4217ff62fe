"""A process beside this one that answers questions, one at a time, and is killed when it is late.

Whoever asks waits, so ask from a thread. The process starts with the first question and anew with
the next one after it was lost.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

_START_S: Final = 30.0

Answering = Callable[[Any, bytes], object]
"""Answers a question and what it is about; must not raise."""


class Late(Exception):
    """The answer did not come in time; the process is gone."""


class Lost(Exception):
    """The process ended over a question, twice."""


class Closed(Exception):
    """No more questions are answered."""


class ReadingProcess:
    """One such process. Only `close` may be called while another thread asks.

    Args:
        make: makes what answers, in the process; a function of a module.
        given: what `make` is called with.
    """

    def __init__(self, make: Callable[[Any], Answering], given: object) -> None:
        self._make = make
        self._given = given
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return self._process.pid if self._process is not None else None

    def ask(self, question: object, about: bytes, limit_s: float) -> Any:
        """The answer. Raises Late, Lost, Closed, or OSError when no process can be started.

        A process may have been killed long before the question, so a lost one costs a second try.
        """
        for _ in range(2):
            try:
                pipe = self._running()
                pipe.send(question)
                pipe.send_bytes(about)
                if not pipe.poll(limit_s):
                    self.end()
                    raise Late
                return pipe.recv()
            except (EOFError, ConnectionError):
                self.end()
                if self._is_closed:
                    raise Closed from None
        raise Lost

    def close(self) -> None:
        """Kill the process; whoever asks gets Closed. `end` then tidies up."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Kill the process if there is one; the next question starts another."""
        process, pipe, self._process, self._pipe = self._process, self._pipe, None, None
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()

    def _running(self) -> Connection:
        if self._is_closed:
            raise Closed
        return self._pipe if self._pipe is not None else self._start()

    def _start(self) -> Connection:
        # A fork would copy the loop and its sockets.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        given = (theirs, self._make, self._given)
        process = context.Process(target=_serve, args=given, daemon=True)
        with theirs:
            process.start()
        self._process, self._pipe = process, ours
        if self._is_closed:  # it could not be killed before it was there
            process.kill()
        with contextlib.suppress(EOFError, ConnectionError):
            if ours.poll(_START_S):
                ours.recv_bytes()
                return ours
        self.end()
        if self._is_closed:
            raise Closed
        raise OSError("the process did not start")


def _serve(pipe: Connection, make: Callable[[Any], Answering], given: object) -> None:
    # A Ctrl-C at the terminal is for the router, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer = make(given)
    pipe.send_bytes(b"")
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            question = pipe.recv()
            pipe.send(answer(question, pipe.recv_bytes()))
