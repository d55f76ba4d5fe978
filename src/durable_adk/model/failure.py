"""What is recorded of an exception, and the exception that is handed on instead of it.

Both the first run and every replay get the one made from the record: an instance of the same
importable class, made without its constructor, with what could be stored of its ``args`` and
attributes. Where that is not possible (a local class, one made in C, one whose text would come
out differently), it is a ``RecordedFailure`` whose classes have the recorded names, because
retry rules match names. Of an exception that is too large the text is cut, and what is large in it
goes the way of what could not be stored. Nothing but subclasses of ``Exception`` is looked up and
used, and no constructor of theirs runs.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from durable_adk.errors import CorruptHistory, NotStorable
from durable_adk.model._codec_classes import find_class, is_builtin, name_of
from durable_adk.model.activity import Payload
from durable_adk.model.codec import decode, encode
from durable_adk.model.lengths import LONGEST, cut

_MAX_NESTING = 5
"""How deep exceptions within exceptions (groups, args, attributes) are followed."""

_ASKED_BY_NAME = ("status", "code", "status_code")
"""Kept for a ``RecordedFailure`` even where they were properties of the class."""

_OF_EVERY_EXCEPTION = frozenset(dir(BaseException)) | {"__weakref__"}


class RecordedFailure(Exception):
    """An exception whose own class could not be used again.

    Its type is a subclass made for it that has the recorded name, as have that type's bases;
    the nearest built-in exception is a real base, so ``except ValueError`` works.

    Attributes:
        recorded_class: ``module.qualname`` of the class that was raised.
    """

    recorded_class: str = ""
    _text: str = ""

    def __str__(self) -> str:
        return self._text


def encode_failure(
    error: BaseException, left: Mapping[str, Any] | None = None, *, most: int | None = None
) -> Payload:
    """What can be stored of an exception in ``most`` bytes, and what its body ``left`` before it
    failed.

    Raises:
        NotStorable: a value in ``left``, or its size; never because of the exception.
    """
    described = _describe(error, 0)
    if _is_over(described, most):
        described = _describe(error, 0, LONGEST)
        if _is_over(described, most):
            described = _least(error)
    if not left:
        return encode(described, where="failure")
    return encode({**described, "left": dict(left)}, where="failure", most=most)


def _is_over(described: Mapping[str, Any], most: int | None) -> bool:
    try:
        encode(described, where="failure", most=most)
    except NotStorable:
        return True
    return False


def left_behind(text: Payload) -> dict[str, Any]:
    """What a failed body left before it failed; empty if nothing was recorded of it."""
    recorded = decode(text)
    left = recorded.get("left") if isinstance(recorded, dict) else None
    return dict(left) if isinstance(left, dict) else {}


def decode_failure(text: Payload) -> Exception:
    """A fresh exception, without traceback, cause or context.

    Raises:
        CorruptHistory: the text was not made by ``encode_failure``.
    """
    recorded = decode(text)
    try:
        return _rebuild(recorded)
    except Exception as error:  # whatever a damaged record makes the rebuilding raise
        raise CorruptHistory(
            "recorded failure", f"cannot be read: {type(error).__name__}: {error}"
        ) from error


# --------------------------------------------------------------------------- what is recorded


def _least(error: BaseException) -> dict[str, Any]:
    """The names of its classes and the beginning of its text."""
    cls = type(error)
    names = [
        base.__name__
        for base in cls.__mro__
        if base not in (RecordedFailure, BaseException, object)
    ]
    name = f"{cls.__module__}.{cls.__qualname__}"
    return {
        "class": "",
        "name": error.recorded_class if isinstance(error, RecordedFailure) else name,
        "names": names or [cls.__name__],
        "text": cut(_text_of(error)),
        "args": [],
        "attributes": {},
    }


def _describe(error: BaseException, nesting: int, longest: int | None = None) -> dict[str, Any]:
    """``longest``: in characters, of each thing in it."""
    recorded = _least(error) | {
        "class": _importable(type(error)),
        "text": cut(_text_of(error), longest),
        "args": [_storable(item, nesting, longest) for item in error.args],
        "attributes": _attributes_of(error, nesting, longest),
    }
    if isinstance(error, BaseExceptionGroup) and nesting < _MAX_NESTING:
        del recorded["args"]
        recorded["message"] = cut(str(error.message), longest)
        recorded["members"] = [_describe(one, nesting + 1, longest) for one in error.exceptions]
    if recorded["class"] and not _comes_back(recorded, error):
        recorded["class"] = ""
    if not recorded["class"]:
        recorded["attributes"] = _asked_by_name(error, longest) | recorded["attributes"]
    return recorded


def _storable(item: object, nesting: int, longest: int | None) -> dict[str, Any]:
    """``{"value"}``, ``{"failure"}``, or for what cannot be stored ``{"text"}``."""
    if isinstance(item, BaseException) and nesting < _MAX_NESTING:
        return {"failure": _describe(item, nesting + 1, longest)}
    try:
        encode(item, most=longest)
    except NotStorable:
        return {"text": cut(_text_of(item), longest)}
    return {"value": item}


def _text_of(item: object) -> str:
    try:
        return str.__str__(str(item))
    except Exception as error:
        return f"<a {type(item).__name__} whose text raised {type(error).__name__}>"


def _attributes_of(
    error: BaseException, nesting: int, longest: int | None
) -> dict[str, dict[str, Any]]:
    """What the instance holds: its ``__dict__``, slots, and the fields of built-in classes."""
    held = dict(vars(error))
    for name in _slots(type(error)):
        item = _read(error, name)
        if item is not None:
            held[name] = item
    stored = {name: _storable(item, nesting, longest) for name, item in held.items()}
    return {name: item for name, item in stored.items() if "text" not in item}


def _slots(cls: type[BaseException]) -> list[str]:
    return [
        name
        for base in cls.__mro__
        if base not in (BaseException, object) and not issubclass(base, BaseExceptionGroup)
        for name, item in vars(base).items()
        if (inspect.ismemberdescriptor(item) or inspect.isgetsetdescriptor(item))
        and name not in _OF_EVERY_EXCEPTION
    ]


def _asked_by_name(error: BaseException, longest: int | None) -> dict[str, dict[str, Any]]:
    found = {name: _read(error, name) for name in _ASKED_BY_NAME}
    return {
        name: _storable(item, 0, longest)
        for name, item in found.items()
        if isinstance(item, (int, str))
    }


def _read(error: BaseException, name: str) -> object:
    try:
        return getattr(error, name, None)
    except Exception:  # a property of the user's
        return None


def _importable(cls: type[BaseException]) -> str:
    if not issubclass(cls, Exception) or issubclass(cls, RecordedFailure):
        return ""
    try:
        return name_of(cls)
    except Exception:  # refused, or a module that computes its attributes
        return ""


def _comes_back(recorded: Mapping[str, Any], error: BaseException) -> bool:
    """Whether the class makes the same failure again from what is recorded."""
    try:
        again = _same_class(decode(encode(recorded)))
    except Exception:  # whatever the class raises, it cannot be used
        return False
    return type(again) is type(error) and _text_of(again) == recorded["text"]


# ------------------------------------------------------------------------------ what comes back


def _rebuild(recorded: Mapping[str, Any]) -> Exception:
    if recorded["class"]:
        with contextlib.suppress(Exception):  # the class has changed: its name is still known
            return _same_class(recorded)
    return _stand_in(recorded)


def _same_class(recorded: Mapping[str, Any]) -> Exception:
    cls = find_class(recorded["class"])
    if not issubclass(cls, Exception):
        raise CorruptHistory(f"recorded class {recorded['class']!r}", "is no exception")
    error = _bare(cls, recorded)
    _fill(error, recorded)
    return error


def _stand_in(recorded: Mapping[str, Any]) -> Exception:
    is_group = bool(recorded.get("members"))
    cls = _stand_in_class(tuple(recorded["names"]), is_group)
    error = _bare(cls, recorded)
    _fill(error, recorded)
    vars(error).update(recorded_class=recorded["name"], _text=recorded["text"])
    return error


def _bare(cls: type[Exception], recorded: Mapping[str, Any]) -> Exception:
    """An instance made by the built-in class below, so that no code of ``cls`` runs."""
    native: Any = next(base for base in cls.__mro__ if is_builtin(base))
    if issubclass(native, BaseExceptionGroup):
        members = [_rebuild(member) for member in recorded["members"]]
        made = native.__new__(cls, recorded["message"], members)
    else:
        made = native.__new__(cls)
    assert isinstance(made, Exception)
    return made


def _fill(error: Exception, recorded: Mapping[str, Any]) -> None:
    if "args" in recorded:
        error.args = tuple(_kept(item) for item in recorded["args"])
    for name, item in recorded["attributes"].items():
        try:
            BaseException.__setattr__(error, name, _kept(item))
        except (AttributeError, TypeError):  # read-only in this version of the class
            continue


def _kept(item: Mapping[str, Any]) -> object:
    if "value" in item:
        return item["value"]
    return _rebuild(item["failure"]) if "failure" in item else item["text"]


@functools.lru_cache(256)
def _stand_in_class(names: tuple[str, ...], is_group: bool) -> type[Exception]:
    """A chain of classes with these names, over the nearest built-in exception among them."""
    native = ExceptionGroup if is_group else _nearest_builtin(names)
    covered = {base.__name__ for base in native.__mro__}
    bases: tuple[type, ...] = (RecordedFailure, native)
    if native is Exception:
        bases = (RecordedFailure,)
    chain = [names[0], *(name for name in names[1:] if name not in covered)]
    for name in reversed(chain):
        bases = (type(name, bases, {"__module__": __name__}),)
    return bases[0]


def _nearest_builtin(names: tuple[str, ...]) -> type[Exception]:
    for name in names:
        found = getattr(builtins, name, None)
        if (
            isinstance(found, type)
            and issubclass(found, Exception)
            and not issubclass(found, BaseExceptionGroup)
        ):
            return found
    return Exception
