"""Which failures a failed attempt opens again: those that left the root, and no other."""

from __future__ import annotations

import asyncio

from durable_adk.model.activity import RecordStatus
from tests.support.attempts import Calls, Desk, Scripted


async def test_a_handled_failure_stays_though_what_followed_it_left_no_record_yet() -> None:
    """Its fallback may have had an effect; tried again, the first choice would have one too."""
    entered = asyncio.Event()

    async def script(calls: Calls, _: object) -> str:
        again = calls.attempt.execution.attempt > 1

        async def primary() -> str:
            raise ValueError("declined")

        async def backup() -> str:
            entered.set()
            if not again:
                await asyncio.Event().wait()
            return "backup"

        async def pay() -> object:
            try:
                return await calls.node("primary", primary)
            except ValueError:
                return await calls.node("backup", backup)

        async def breaks() -> str:
            await entered.wait()
            raise RuntimeError("sibling")

        async def sibling() -> object:
            return await calls.node("sibling", None if again else breaks)

        async with asyncio.TaskGroup() as group:
            one, two = group.create_task(pay()), group.create_task(sibling())
        return f"{one.result()} and {two.result()}"

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    failed = {
        record.slot: record.name
        for record in await desk.records(execution)
        if record.status is RecordStatus.FAILED
    }
    assert [failed[slot] for slot in queued.voided] == ["sibling"]
    await desk.run(await desk.claim(execution), program)
    assert program.ledger.entered.count("primary") == 1
