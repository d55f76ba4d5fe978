"""What leaves a run and is no ``Exception``, as the failure of an attempt."""

from __future__ import annotations

from durable_adk.model import failure


def as_failure(error: BaseException) -> BaseException:
    """What left the run, as something that ends an attempt: extensions raise what is no
    ``Exception`` (a panic), and an attempt that ended with none would be tried for ever."""
    if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
        return error
    made = failure.decode_failure(failure.encode_failure(error))
    made.__cause__ = error
    return made
