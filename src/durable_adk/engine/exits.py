"""What leaves a run and is no ``Exception``, as the failure of an attempt.

``sys.exit()`` in a body would end the process, and the next one that claims the execution, for
ever. So it fails the attempt instead, unless a signal handler raised it: then the process is meant
to end, and the body it hit has nothing to do with it.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Callable
from types import CodeType
from typing import Any

from durable_adk.model import failure


class Exited(BaseException):
    """User code raised ``SystemExit``. A loop ends at that one as soon as it leaves a task, whoever
    would handle it.

    Attributes:
        exit: What it raised.
    """

    def __init__(self, raised: SystemExit) -> None:
        super().__init__(*raised.args)
        self.exit = raised


class RunCancelled(Exception):
    """User code cancelled itself: nobody had asked for it."""


def kept_inside(error: SystemExit) -> BaseException:
    """What to raise in its place; itself where a signal handler of this process raised it."""
    return error if _is_of_a_handler(error) else Exited(error)


def as_failure(error: BaseException) -> BaseException:
    """What left the run, as something that ends an attempt: extensions raise what is no
    ``Exception`` (a panic), and an attempt that ended with none would be tried for ever."""
    if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
        return error
    told = error.exit if isinstance(error, Exited) else error
    made = failure.decode_failure(failure.encode_failure(told))
    made.__cause__ = told
    return made


async def asked(callback: Callable[..., Any], *given: object) -> Any:
    """What a callback of the user's returns, awaited where it has to be; for a task of its own.

    Raises:
        Exited: it raised ``SystemExit``.
    """
    try:
        found = callback(*given)
        return await found if inspect.isawaitable(found) else found
    except SystemExit as error:
        raise kept_inside(error) from error


def result_of(ended: asyncio.Task[Any], what: str) -> Any:
    """What a task of user code came to, which nobody cancelled from outside.

    Raises:
        RunCancelled: it let a cancellation of its own out.
        Exception: what it raised, as the failure of an attempt.
    """
    if ended.cancelled():
        raise RunCancelled(f"{what} was cancelled from inside")
    left = ended.exception()
    if left is not None:
        raise as_failure(left)
    return ended.result()


def _is_of_a_handler(error: SystemExit) -> bool:
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: object) -> CodeType | None:
    """The code that runs first when a handler is called; None if it is not in Python."""
    handler = getattr(handler, "func", handler)  # a partial
    handler = getattr(handler, "__func__", handler)  # a method
    called = (vars(one).get("__call__") for one in type(handler).__mro__)
    for one in (handler, *called):
        code = getattr(one, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
