from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_adk.errors import CorruptHistory
from durable_adk.model import position as p
from durable_adk.model.activity import Kind
from durable_adk.model.position import Position

NAMES = st.text(min_size=1, max_size=8)
COUNTS = st.integers(1, 10**6)
SEGMENTS = st.one_of(
    st.builds(p.node_segment, NAMES, NAMES),
    st.builds(p.agent_segment, NAMES, COUNTS),
    st.builds(p.call_segment, COUNTS, st.integers(0, 99)),
)
PATHS = st.lists(SEGMENTS, max_size=4).map(
    lambda segments: "/".join([p.node_segment(p.ROOT, "1"), *segments])
)
POSITIONS = st.builds(
    Position,
    step=COUNTS,
    path=PATHS,
    entry=COUNTS,
    kind=st.sampled_from(Kind),
    ordinal=COUNTS,
    label=st.text(max_size=8),
)


@given(POSITIONS)
def test_the_text_of_a_position_reads_back(position: Position) -> None:
    assert Position.parse(position.text) == position
    assert Position.parse(position.text).digest == position.digest


@given(POSITIONS, POSITIONS)
def test_two_positions_have_two_texts(a: Position, b: Position) -> None:
    assert (a == b) == (a.text == b.text) == (a.digest == b.digest)


@given(PATHS, SEGMENTS)
def test_a_segment_adds_exactly_one_level_whatever_its_name(path: str, segment: str) -> None:
    child = p.join(path, segment)
    assert p.parent_of(child) == path
    assert p.is_under(child, path)
    assert p.is_under(path, path)
    assert not p.is_under(path, child)


def test_a_sibling_whose_name_begins_alike_is_not_below() -> None:
    assert not p.is_under("agent#1/review#10", "agent#1/review#1")
    assert p.parent_of("agent#1") == ""
    assert p.join("", "agent#1") == "agent#1"


def test_the_text_forms_are_pinned_because_stored_keys_are_made_of_them() -> None:
    path = p.join("agent#1", p.node_segment("a/b#c~d:e%f|g", "1"))
    assert path == "agent#1/a%2Fb%23c%7Ed%3Ae%25f%7Cg#1"
    assert p.join(path, p.call_segment(3, 0)).endswith("/:m3.0")
    assert p.agent_segment("seq", 2) == "seq~2"
    position = Position(1, "agent#1/inner#1", 2, Kind.TOOL, 3)
    assert position.text == "1|agent#1/inner#1|2|tool|3"
    assert position.digest == "3886069bcf978e9828a4"
    labelled = Position(1, "agent#1", 1, Kind.STEP, 1, "a|b")
    assert labelled.text == "1|agent#1|1|step|1|a%7Cb"


@pytest.mark.parametrize(
    "text",
    ["", "1|a|1|tool", "1|a|1|tool|1|x|y", "x|a|1|tool|1", "1|a|1|dance|1", "1|a||tool|1"],
)
def test_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(CorruptHistory, match="position"):
        Position.parse(text)


@given(st.text(min_size=1).filter(lambda text: "~" not in text), POSITIONS)
def test_a_public_id_splits_into_its_execution_and_its_position(
    execution_id: str, position: Position
) -> None:
    public = p.activity_id(execution_id, position.digest)
    assert p.split_activity_id(public) == (execution_id, position.digest)


@pytest.mark.parametrize(
    "text",
    ["", "x", "~" + "0" * 20, "x~", "x~" + "0" * 19, "x~" + "G" * 20, "x~" + "0" * 20 + "\n"],
)
def test_text_that_is_no_public_id_is_none(text: str) -> None:
    assert p.split_activity_id(text) is None


def test_a_digest_is_twenty_hex_digits() -> None:
    assert re.fullmatch("[0-9a-f]{20}", Position(1, "agent#1", 1, Kind.MODEL, 1).digest)
