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


WAYS_ON = {
    "running": ("Wait for it", "execution_id='x'", "worker", "recover()", "lease.ttl"),
    "queued": ("worker", "recover()", "execution_id='x'", "retry()"),
    "suspended": ("Answer its waits", "resume()", "answer()", "cancel()"),
    "stuck": ("code that made its history", "retry()", "cancel()", "give_up()"),
}


@pytest.mark.parametrize("status", WAYS_ON)
def test_a_busy_session_says_what_to_do_about_the_execution_in_the_way(status: str) -> None:
    error = errors.SessionBusy("s", execution_id="x", status=status)
    assert [part for part in WAYS_ON[status] if part not in error.remedy] == []
    assert ("give_up()" in error.remedy) == (status == "stuck")
    assert ("Answer" in error.remedy) == (status == "suspended")


def test_a_reason_that_asks_keeps_its_question_mark() -> None:
    assert str(errors.ConfigError("a", "b?", "Do c.")) == "a: b? Do c."
    assert str(errors.ConfigError("a", "b.", "Do c.")) == "a: b. Do c."


def test_a_mismatch_shows_digests_short_and_keeps_them_whole() -> None:
    recorded, asked = "pay (" + "0a" * 16 + ")", "pay(cents=1) (" + "1b" * 16 + ")"
    error = errors.ReplayMismatch("000001:x", recorded=recorded, asked=asked)
    assert "recorded pay (0a0a0a0a), asked pay(cents=1) (1b1b1b1b)" in str(error)
    assert (error.recorded, error.asked) == (recorded, asked)


def test_one_answer_that_does_not_fit_names_its_wait_once() -> None:
    one = errors.InvalidAnswer("answer to wait 'x~1'", {"x~1": "is no number"}, "Send one.")
    assert str(one) == "answer to wait 'x~1': is no number. Send one."
    many = errors.InvalidAnswer("answers to execution 'x'", {"x~1": "is missing"})
    assert "x~1: is missing" in str(many)
    assert one.problems == {"x~1": "is no number"}


def test_an_unknown_outcome_carries_its_position() -> None:
    assert errors.OutcomeUnknown("pay", "was entered", position="000001:p").position == "000001:p"
