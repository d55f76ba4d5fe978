"""Prunes a session in an interpreter of its own that may die at a point of it."""

from __future__ import annotations

import asyncio
import json
import sys

from durable_adk import App
from durable_adk.store.clock import ServerClock
from durable_adk.testing import FaultPlan
from tests.app.conftest import ON


async def main() -> None:
    given = json.load(sys.stdin)
    plan = FaultPlan().kill(given["point"], at=given["at"], sigkill=True)
    place = {"mongodb": given["uri"], "database": given["database"]}
    clock = ServerClock(given["offset"])
    async with App("kept", config=ON, faults=plan, clock=clock, **place) as app:
        await app.sessions.prune("u", "s", turns=1)


if __name__ == "__main__":
    asyncio.run(main())
