from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_adk.errors import ConfigError
from durable_adk.model import identity as i
from durable_adk.model.identity import Tenant

TEXT = st.text(max_size=8)


@given(st.tuples(TEXT, TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT, TEXT))
def test_different_owners_or_ids_never_share_a_key(
    a: tuple[str, str, str, str], b: tuple[str, str, str, str]
) -> None:
    def keys(parts: tuple[str, str, str, str]) -> tuple[str, str]:
        namespace, app, user, session = parts
        return i.session_key(Tenant(namespace, app), user, session), i.scope_key(
            Tenant(namespace, app), user, session
        )

    assert (keys(a)[0] == keys(b)[0]) == (a == b)
    assert (keys(a)[1] == keys(b)[1]) == (a == b)


def test_text_cannot_move_from_one_part_of_a_key_to_the_next() -> None:
    assert i.execution_key(Tenant("a", "bc"), "d") != i.execution_key(Tenant("ab", "c"), "d")
    assert i.execution_key(Tenant('a","b', "c"), "d") != i.execution_key(Tenant("a", "b"), "c")


def test_keys_are_pinned_because_stored_documents_have_them() -> None:
    key = i.execution_key(Tenant("default", "refunds"), "x")
    assert key == hashlib.sha256(b'["default","refunds","x"]').hexdigest()[:32]


def test_random_ids_have_their_lengths_and_differ() -> None:
    assert re.fullmatch("[0-9a-f]{24}", i.new_run_id())
    assert re.fullmatch("[0-9a-f]{16}", i.new_nonce())
    assert len({i.new_run_id() for _ in range(100)} | {i.new_nonce() for _ in range(100)}) == 200


@pytest.mark.parametrize("value", ["x", "a b", "ü", "a/b#c", "x" * 256, "$where", "a.b"])
def test_a_printable_id_is_returned_as_it_is(value: str) -> None:
    assert i.checked_id("user id", value) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("x" * 257, "has 257 characters"),
        ("a~b", "not allowed"),
        ("a\nb", "not allowed"),
        ("a\0b", "not allowed"),
        ("\ud800", "not allowed"),
        (None, "expected text, got NoneType"),
        (7, "expected text, got int"),
        (b"x", "expected text, got bytes"),
        ({"$ne": None}, "expected text, got dict"),
    ],
)
def test_anything_else_is_refused_with_the_rule(value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        i.checked_id("session id", value)
    assert refused.value.subject == "session id"
    assert "256 printable characters" in refused.value.remedy
