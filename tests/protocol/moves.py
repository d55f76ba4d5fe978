"""Everything that may happen next in a world.

Moves are as small as the writes of the protocol: between any two of them, every other process
may move.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol import clients, doubts, owners
from tests.protocol.turn import Move, Turn
from tests.protocol.world import Phase, Program, Rules, World


def moves(program: Program, rules: Rules, world: World) -> Iterator[Move]:
    claimed = False
    for index, owner in enumerate(world.owners):
        turn = Turn(program, rules, world, index)
        if owner.phase is Phase.IDLE:
            if not claimed:  # idle owners are alike: the first one stands for all
                yield from owners.claim(turn)
            claimed = True
        elif owner.phase is Phase.DEAD:
            yield from owners.write_late(turn)
        else:
            yield from owners.suffer(turn)
            yield from owners.work(turn)
    yield from clients.ask_to_cancel(program, world)
    for index in range(len(world.clients)):
        yield from clients.answer(program, rules, world, index)
    for index in range(len(world.settlers)):
        yield from doubts.settle(program, rules, world, index)
    if program.expires and not world.expired:
        yield "the waits expire", world._replace(expired=True)
