"""The tree in the docstring of ``durable_adk.errors`` is the tree of its classes."""

from __future__ import annotations

import inspect
import re

import pytest

from durable_adk import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and value.__module__ == errors.__name__
}


def drawn_tree() -> dict[str, str | None]:
    """Each drawn class and its parent, by the depth it is drawn at."""
    tree: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        drawn = re.match(r"(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s{2,}\S.*)?$", line)
        if drawn is None:
            continue
        depth = len(drawn["indent"]) // 4
        path[depth:] = [drawn["name"]]
        tree[drawn["name"]] = path[depth - 1] if depth else None
    return tree


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    real = {
        name: None if cls is errors.DurableError else cls.__bases__[0].__name__
        for name, cls in CLASSES.items()
    }
    assert drawn_tree() == real


def test_every_error_is_public() -> None:
    assert errors.__all__ == sorted(CLASSES)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_error_says_what_it_means(name: str) -> None:
    assert (CLASSES[name].__doc__ or "").strip()


def example(cls: type[errors.DurableError]) -> errors.DurableError:
    """One error of a class, its parameters filled by their names and annotations."""
    values: dict[str, object] = {
        "str": "text",
        "tuple[str, ...]": ("w1", "w2"),
        "dict[str, str]": {"w1": "missing"},
    }
    arguments: dict[str, object] = {}
    positional: list[object] = []
    for parameter in inspect.signature(cls).parameters.values():
        value = values[str(parameter.annotation)]
        if parameter.kind is parameter.KEYWORD_ONLY:
            arguments[parameter.name] = value
        else:
            positional.append(value)
    return cls(*positional, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_error_carries_subject_reason_and_remedy(name: str) -> None:
    error = example(CLASSES[name])
    assert error.subject
    assert error.reason
    assert error.remedy
    for part in (error.subject, error.reason, error.remedy):
        assert part in str(error)
