"""Classes whose instances are recorded in tests: importable, one per way of being unusual."""

from __future__ import annotations

import enum
from collections import namedtuple
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel

T = TypeVar("T")


class Colour(enum.Enum):
    RED = 1
    GREEN = ("two", 2)
    SCARLET = RED


class Level(enum.StrEnum):
    LOW = "low"
    EMPTY = ""


class Size(enum.IntEnum):
    SMALL = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Mode(enum.IntFlag):
    A = 1
    B = 2


class Lenient(enum.StrEnum):
    """Makes members up, as some generated clients do for values newer than themselves."""

    KNOWN = "known"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        made = str.__new__(cls, value)
        made._name_ = made._value_ = str(value)
        return made


class Outer:
    class Inner(enum.Enum):
        ONE = 1


constructed: list[str] = []
"""Names of the classes below whose constructors ran."""


@dataclass
class Plain:
    a: Any
    b: Any = None
    tags: list[str] = field(default_factory=list)
    limit: ClassVar[int] = 3

    def __post_init__(self) -> None:
        constructed.append("Plain")


@dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    derived: str = field(init=False)
    seed: InitVar[int] = 1

    def __post_init__(self, seed: int) -> None:
        object.__setattr__(self, "derived", f"{self.a}{seed}")


@dataclass
class Unset:
    late: Any = field(init=False)


@dataclass
class Extended:
    """Holds an attribute that is no field."""

    a: int

    def __post_init__(self) -> None:
        self.seen = [self.a]


@dataclass
class Box(Generic[T]):
    content: T


class _Slotted:
    __slots__ = ("__hidden", "open")

    def hide(self, value: object) -> None:
        self.__hidden = value

    def hidden(self) -> object:
        return self.__hidden


@dataclass
class OnSlots(_Slotted):
    a: int


@dataclass
class ListData(list[int]):
    a: int = 0


@dataclass
class Computed:
    a: int = 0

    @property
    def _held(self) -> int:
        return self.a


class Point(NamedTuple):
    x: Any
    y: Any = 0


OldPoint = namedtuple("OldPoint", "x y")


class Inner(BaseModel):
    n: int
    text: str = ""
    note: str | None = None


class Model(BaseModel):
    inner: Inner
    many: list[Inner] = []
    anything: Any = None
    mode: Level = Level.LOW
    made: list[int] = Field(default_factory=lambda: [1])
    empty: dict[str, int] = Field(default_factory=dict)

    @cached_property
    def twice(self) -> int:
        return self.inner.n * 2


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: Any = 0


class Private(BaseModel):
    a: int = 0
    _count: int = PrivateAttr(default=0)
    _note: str | None = PrivateAttr(default=None)
    _late: int = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        constructed.append("Private")
        self._count += 1


class Tags(RootModel[list[str]]):
    pass


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


class Callback(BaseModel):
    run: Callable[[], None]


class Ordinary:
    """Of no family that is recorded."""


class Text(str):
    pass


class Number(int):
    pass


class Mapping2(dict[str, Any]):
    pass


class Unreadable(BaseModel):
    a: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "__pydantic_fields_set__":
            raise RuntimeError("no")
        return super().__getattribute__(name)
