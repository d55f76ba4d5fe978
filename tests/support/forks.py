"""Processes forked from this one: warm, with pipes, and otherwise like those of ``subprocess``.

An interpreter of its own needs two seconds to import ADK; a fork needs none. It begins with the
signals, the standard streams and the event loop of a new process, and ends without any cleanup of
what it was forked from.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import IO

LOOK_S = 0.01


class Process:
    """A forked process; the names are those of ``subprocess.Popen`` with text pipes."""

    def __init__(self, pid: int, stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code (negative: signal), or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            time.sleep(LOOK_S)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def begin(work: Callable[[], object], given: str = "") -> Process:
    """Start a process that does ``work`` with ``given`` on its standard input."""
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = (
        os.pipe(),
        os.pipe(),
        os.pipe(),
    )
    assert len(given) < 1 << 15, "would not fit into the pipe"
    os.write(in_write, given.encode())
    os.close(in_write)
    pid = os.fork()
    if pid == 0:
        _be_new((in_read, out_write, err_write))
        _end_with(work)
    for one in (in_read, out_write, err_write):
        os.close(one)
    return Process(pid, os.fdopen(out_read, "r"), os.fdopen(err_read, "r"))


def run(work: Callable[[], object], given: str = "") -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = begin(work, given)
    with process.stdout as out, process.stderr as err:
        said, complained = out.read(), err.read()
    return subprocess.CompletedProcess([], process.wait(), said, complained)


def _be_new(streams: tuple[int, int, int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for to, one in enumerate(streams):
        os.dup2(one, to)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    warnings.simplefilter("ignore")
    asyncio.set_event_loop(None)


def _end_with(work: Callable[[], object]) -> None:
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
