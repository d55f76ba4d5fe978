"""The other side of the conversations: a client that answers, and the twins' undisturbed one."""

from __future__ import annotations

import abc
import asyncio
import collections
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from durable_adk import AnswerConflict, App, Unavailable, WaitClosed, WriteUnknown
from tests.soak.plans import Family, Fork, Turn
from tests.soak.programs import answer_to
from tests.soak.world import World

T = TypeVar("T")
FINAL = ("completed", "failed", "cancelled")
LOOK_EVERY_S = 0.4
NEW_ANSWERS = 6


class Talk(abc.ABC):
    """Has the conversation of a family. Subclasses say how one turn is had.

    Attributes:
        had: Execution ids by session, of every turn that was begun.
    """

    def __init__(self, app: App, family: Family) -> None:
        self.app = app
        self.family = family
        self.had: dict[str, list[str]] = {}

    async def have(self) -> None:
        family, fork = self.family, self.family.fork
        async with asyncio.TaskGroup() as forks:
            for number, turn in enumerate(family.turns):
                await self._turn(family.session, turn, turn.x)
                if fork is not None and fork.after == number:
                    forks.create_task(self._fork(fork, turn.x))

    async def _fork(self, fork: Fork, after: str) -> None:
        family = self.family
        made = await self.surely(
            lambda: self.app.sessions.fork(
                family.user, family.session, after=after, idempotency_key=family.session
            )
        )
        ids = [made.execution_id, *(turn.x for turn in fork.turns[1:])]
        for turn, execution_id in zip(fork.turns, ids, strict=True):
            await self._turn(made.session_id, turn, execution_id)

    async def _turn(self, session: str, turn: Turn, execution_id: str) -> None:
        self.had.setdefault(session, []).append(execution_id)
        await self.turn(session, turn, execution_id)

    @abc.abstractmethod
    async def turn(self, session: str, turn: Turn, execution_id: str) -> None:
        """From a message to its end."""

    async def surely(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do a call of the App."""
        return await call()


class Undisturbed(Talk):
    """Runs each turn itself and answers at once."""

    async def turn(self, session: str, turn: Turn, execution_id: str) -> None:
        out = await self.app.invoke(
            user_id=self.family.user,
            session_id=session,
            message=turn.message,
            execution_id=execution_id,
        )
        answered: set[str] = set()
        while out.status not in FINAL:
            for wait in out.waits:
                value = answer_to(wait.to_dict())
                if value is not None and wait.id not in answered:
                    answered.add(wait.id)
                    await self.app.answer(wait.id, value)
            if not await self.app.recover():  # also what has slept, or expired
                await asyncio.sleep(LOOK_EVERY_S)
            out = await self.app.executions.outcome(execution_id)


class Client(Talk):
    """Leaves the work to workers; answers late, twice, and sometimes something else as well.

    Attributes:
        figures: What it did, and how often a call of it failed.
        wrong: What should not have been possible.
    """

    def __init__(self, app: App, family: Family, world: World) -> None:
        super().__init__(app, family)
        self.figures: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self._world = world
        self._draw = random.Random(family.session)
        self._answered: set[str] = set()

    async def turn(self, session: str, turn: Turn, execution_id: str) -> None:
        user = self.family.user
        await self.surely(
            lambda: self.app.submit(
                user_id=user, session_id=session, message=turn.message, execution_id=execution_id
            )
        )
        self.figures["submitted"] += 1
        async with asyncio.TaskGroup() as answers:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                page = await self.surely(
                    lambda: self.app.executions.list(user_id=user, session_id=session, limit=1)
                )
                (record,) = page.items
                if record.status in FINAL:
                    await self._check_end(record, execution_id)
                    break
                if record.status == "suspended":
                    await self._answer_new(session, answers)

    async def _check_end(self, listed: Any, execution_id: str) -> None:
        """What a list says of the newest execution is what that execution says of itself."""
        record = await self.surely(lambda: self.app.executions.get(execution_id))
        if (listed.id, listed.status) != (record.id, record.status):
            self.wrong.append(
                f"a list said that {listed.id} is {listed.status}; {record.id} is {record.status}"
                f" in attempt {record.attempt}"
            )

    async def _answer_new(self, session: str, answers: asyncio.TaskGroup) -> None:
        user = self.family.user
        page = await self.surely(lambda: self.app.waits.list(user_id=user, session_id=session))
        for wait in page.items:
            if wait.id not in self._answered:
                self._answered.add(wait.id)
                if wait.kind == "in_doubt" or answer_to(wait.to_dict()) is not None:
                    answers.create_task(self._answer(wait))
                else:
                    self.figures["sleeps" if wait.kind == "timer" else "expiries"] += 1

    async def _answer(self, wait: Any) -> None:
        draw = self._draw
        value = self._settled(wait) if wait.kind == "in_doubt" else answer_to(wait.to_dict())
        await asyncio.sleep(draw.choice((0, 0.2, 0.5, 1, 2, 6)))
        twice, later, other = draw.random() < 0.3, draw.random() < 0.2, draw.random() < 0.2
        give = [self._give(wait, value) for _ in range(1 + twice)]
        self.figures["duplicate answers"] += twice + later
        self.figures["answers"] += 1
        await asyncio.gather(*give)
        if later:
            await asyncio.sleep(draw.random() * 5)
            await self._give(wait, value)
        if other and wait.kind != "in_doubt":
            await self._contradict(wait, value)

    async def _give(self, wait: Any, value: Any) -> None:
        await self.surely(lambda: self.app.answer(wait.id, value, by="client"))

    async def _contradict(self, wait: Any, value: Any) -> None:
        is_confirmation = wait.kind == "adk_request_confirmation"
        other = {"confirmed": not value["confirmed"]} if is_confirmation else {"another": "answer"}
        try:
            await self._give(wait, other)
        except (AnswerConflict, WaitClosed):
            self.figures["contradictions refused"] += 1
        else:
            self.wrong.append(f"wait {wait.id} took two different answers")

    def _settled(self, wait: Any) -> Any:
        """What a person finds out about a call that is in doubt."""
        key = wait.tool_call.args["key"]
        self.figures["doubts settled"] += 1
        if any(row[2:4] == ("began", key) for row in self._world.ledger.rows()):
            return {"outcome": "done", "result": {"wired": key}}
        return {"outcome": "not_done"}

    async def surely(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do a call again while MongoDB cannot be reached, and count that: it should not happen."""
        while True:
            try:
                return await call()
            except (Unavailable, WriteUnknown) as error:
                self.figures["errors that a retry solved"] += 1
                self.wrong.append(f"a client saw {error!r}")
                await asyncio.sleep(0.5)


# -------------------------------------------------------------------- what is left


async def kept(
    app: App, user: str, session: str, execution_ids: Sequence[str], *, first_is_drawn: bool
) -> dict[str, Any]:
    """What a session holds, as plain data.

    Args:
        first_is_drawn: The first execution has a random id (a fork's): ids that come of it are
            numbered, since they cannot be equal.
    """
    outcomes = [await app.executions.outcome(x) for x in execution_ids]
    records = [await app.executions.get(x) for x in execution_ids]
    events = [
        json.loads(event.model_dump_json(exclude_none=True))
        for event in await app.sessions.events(user_id=user, session_id=session)
    ]
    drawn = execution_ids[0] if first_is_drawn else None
    state = (await app.sessions.get(user_id=user, session_id=session)).to_dict()["state"]
    return {
        "executions": list(execution_ids),
        "drawn": drawn,
        "status": [out.status for out in outcomes],
        "error": [out.error.type if out.error else None for out in outcomes],
        "output": [out.to_dict()["output"] for out in outcomes],
        "attempts": [record.attempt for record in records],
        "events": events,
        "state": state,
    }
