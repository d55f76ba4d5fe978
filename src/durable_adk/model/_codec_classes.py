"""The families of classes that the codec rebuilds, and how a class is named and found.

A class is named ``module:qualname``. A name found in a payload is looked up, checked to be of
one of the families, and only then used. No constructor of it runs.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import re
import sys
import weakref
from types import ModuleType

from pydantic import BaseModel

from durable_adk.errors import CorruptHistory

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

_HEAP_TYPE = 1 << 9
"""CPython's flag of classes made by a ``class`` statement; built-in ones do not have it."""

_families: weakref.WeakKeyDictionary[type, Family | None] = weakref.WeakKeyDictionary()


class Refused(Exception):
    """A value that cannot be stored. The places around it are added while it travels up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.places: list[str] = []

    def path(self, where: str) -> str:
        """Where the value sits; a very deep path loses its middle."""
        outermost_first = self.places[::-1]
        if len(outermost_first) > 16:
            outermost_first[8:-8] = ["..."]
        return where + "".join(outermost_first)


class Family(enum.Enum):
    """Kinds of classes that are rebuilt from what an instance holds."""

    ENUM = "enum"
    DATACLASS = "dataclass"
    PYDANTIC = "pydantic"
    NAMED_TUPLE = "named tuple"


def family_of(cls: type) -> Family | None:
    """The family of a class, or None if instances of it are not stored."""
    try:
        return _families[cls]
    except KeyError:
        family = _families[cls] = _classify(cls)
        return family


def _classify(cls: type) -> Family | None:
    if issubclass(cls, enum.Enum):
        return Family.ENUM if cls is not enum.Enum else None
    if issubclass(cls, BaseModel):
        return Family.PYDANTIC if _is_bare(cls) and cls is not BaseModel else None
    if dataclasses.is_dataclass(cls):
        return Family.DATACLASS if _is_bare(cls) else None
    fields = getattr(cls, "_fields", None)
    if cls.__bases__ == (tuple,) and isinstance(fields, tuple):
        return Family.NAMED_TUPLE
    return None


def _is_bare(cls: type) -> bool:
    """Whether its instances hold nothing but attributes (no list, no text, no exception)."""
    return not any(is_builtin(base) for base in cls.__mro__ if base is not object)


def is_builtin(cls: type) -> bool:
    """Whether the class is made in C as part of a module, not by a ``class`` statement."""
    return not cls.__flags__ & _HEAP_TYPE


def name_of(cls: type) -> str:
    """``module:qualname`` of a class that an import finds again.

    Raises:
        Refused: a local class, or one that its own name does not lead to.
    """
    module, qualname = cls.__module__, cls.__qualname__
    if "<locals>" in qualname:
        raise Refused(f"{qualname} is a local class: define it at the top of a module")
    if module == "__main__":
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        module = spec.name if spec is not None else module
    try:
        found = find_class(f"{module}:{qualname}")
    except CorruptHistory:
        found = None
    if found is not cls:
        raise Refused(f"{module}.{qualname} cannot be imported, or is another class there")
    return f"{module}:{qualname}"


def find_class(name: object) -> type:
    """The class that ``module:qualname`` names. It is not used in any way.

    Raises:
        CorruptHistory: no such class.
    """
    module_name, mark, qualname = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not (mark and _MODULE.fullmatch(module_name) and qualname):
        raise CorruptHistory(f"recorded class {name!r}", "is no module:qualname")
    holder: ModuleType | type = _module(module_name)
    for part in qualname.split("."):
        found: object = getattr(holder, part, None)
        if not isinstance(found, type):
            raise CorruptHistory(
                f"recorded class {name!r}",
                "is no class of this program",
                "Run the code that wrote it, or keep the class importable under its old name.",
            )
        holder = found
    assert isinstance(holder, type)
    return holder


def find_member(name: str) -> tuple[type, Family]:
    """The class that ``name`` names, if it is of a family.

    Raises:
        CorruptHistory: no such class, or one of no family.
    """
    cls = find_class(name)
    family = family_of(cls)
    if family is None:
        raise CorruptHistory(f"recorded class {name!r}", "is of no family that is rebuilt")
    return cls, family


def _module(name: str) -> ModuleType:
    main = sys.modules.get("__main__")
    if main is not None and getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main
    try:
        return sys.modules.get(name) or importlib.import_module(name)
    except Exception as error:
        raise CorruptHistory(
            f"recorded module {name!r}",
            f"cannot be imported: {error}",
            "Run the code that wrote it.",
        ) from error
