"""Exceptions that are recorded in tests, one per way of being unusual."""

from __future__ import annotations

from typing import Any

constructed: list[str] = []
"""Names of the classes below whose constructors ran."""


class ToolFailed(Exception):
    """Has a constructor of its own and an attribute that cannot be stored."""

    def __init__(self, order: int, *, status: str) -> None:
        constructed.append("ToolFailed")
        super().__init__(f"order {order}: {status}")
        self.order = order
        self.status = status
        self.connection = object()


class Declined(ToolFailed):
    pass


class OnSlots(Exception):
    __slots__ = ("order",)

    def __init__(self, order: int) -> None:
        self.order = order


class Odd(Exception):
    """Makes itself in ``__new__`` and refuses to be set."""

    def __new__(cls, required: str) -> Odd:
        constructed.append("Odd")
        return super().__new__(cls, required)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError("no")


class WithProperties(Exception):
    def __init__(self, response: object) -> None:
        self._response = response

    @property
    def status_code(self) -> int:
        return 503

    @property
    def code(self) -> int:
        raise RuntimeError("no")

    def __str__(self) -> str:
        return f"response {self._response.__class__.__name__}"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Disk(OSError):
    def __init__(self, device: str) -> None:
        super().__init__(5, "broken", device)
        self.device = device


class Both(KeyError, AttributeError):
    pass


class Wrapping(Exception):
    def __init__(self, inner: BaseException) -> None:
        super().__init__(inner)
        self.inner = inner


class Batch(ExceptionGroup[Exception]):
    def __init__(self, message: str, members: list[Exception]) -> None:
        self.size = len(members)


class NotAnException:
    def __init__(self) -> None:
        constructed.append("NotAnException")
