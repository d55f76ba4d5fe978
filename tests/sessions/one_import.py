"""Imports a file in a process of its own that may die at a point of it."""

from __future__ import annotations

import json
import sys

from durable_adk import App
from durable_adk.testing import FaultPlan
from tests.app.conftest import ON


async def main() -> None:
    given = json.load(sys.stdin)
    plan = FaultPlan()
    if given["point"]:
        plan.kill(given["point"], at=given["at"])
    place = {"mongodb": given["uri"], "database": given["database"]}
    async with App("desk", config=ON, faults=plan, **place) as app:
        await app.sessions.import_(given["path"])
    print(json.dumps(plan.reached))
