"""The code of a sign-in is good for one exchange: what it gave a node is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shapes.credentials import SHAPES
from tests.shapes.shape import wrong
from tests.shapes.test_shapes import MODES
from tests.support.lives import World


@pytest.mark.parametrize("mode", MODES)
def test_a_sign_in_is_exchanged_once_although_the_node_runs_again(
    mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    shape = SHAPES["a function node that asks for a sign-in"]
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    life = world.live(shape, kill=(2, ("ran: node gated", 1)))
    assert life.killed_at is not None
    exchanges = {row: n for row, n in life.ledger.items() if row[:2] == ("http", "exchange")}
    assert list(exchanges.values()) == [1]
    assert life.ledger["node", "gated", "of the user"] == 2
    assert [text for text in wrong(shape, life) if "ran 2 times" not in text] == []
