"""Histories as files: taken out of a real MongoDB as they are stored, and put back into one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bson import json_util
from pymongo import AsyncMongoClient

from durable_adk import App
from durable_adk.store.clock import ServerClock
from tests.replay.programs import Scenario
from tests.support.lives import LEASE_PASSED_MS, Ledger

HISTORIES = Path(__file__).parent / "histories"
NAMESPACE, APP, USER = "golden", "golden", "u"
PREFIX = "durable_"
_OPTIONS = json_util.RELAXED_JSON_OPTIONS


@dataclass(frozen=True, kw_only=True)
class History:
    """One file.

    Attributes:
        scenario: The name of the program.
        session, execution: Ids of the last turn.
        status: Its status.
        waits: The kinds of its open waits.
        matched: How many recorded calls its replay asks for.
        runs: What ran from here to the end.
        documents: By collection, as MongoDB had them.
    """

    scenario: str
    session: str
    execution: str
    status: str
    waits: list[str] = field(default_factory=list)
    matched: int = 0
    runs: list[list[Any]] = field(default_factory=list)
    documents: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """One document a line, so that a difference can be read."""
        head = {k: v for k, v in vars(self).items() if k != "documents"}
        lines = [json.dumps(head, sort_keys=True)]
        for collection, documents in sorted(self.documents.items()):
            for document in documents:
                text = json_util.dumps(document, json_options=_OPTIONS, separators=(",", ":"))
                lines.append(f'{{"in":"{collection}","document":{text}}}')
        path.write_text("\n".join(lines) + "\n")

    @classmethod
    def read(cls, path: Path) -> History:
        head, *lines = path.read_text().splitlines()
        documents: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            one = json_util.loads(line, json_options=_OPTIONS)
            documents.setdefault(one["in"], []).append(one["document"])
        return cls(**json.loads(head), documents=documents)


def files() -> dict[str, Path]:
    return {path.stem: path for path in sorted(HISTORIES.glob("*.jsonl"))}


class Place:
    """A database that holds one history at a time."""

    def __init__(self, uri: str, database: str) -> None:
        self.uri, self.name = uri, database
        self._client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri)
        self._database = self._client[database]

    async def close(self, *, drop: bool = True) -> None:
        if drop:
            await self._client.drop_database(self.name)
        await self._client.close()

    async def clear(self) -> None:
        for name in await self._database.list_collection_names():
            await self._database[name].delete_many({})

    async def put(self, documents: dict[str, list[dict[str, Any]]]) -> None:
        """Exactly these documents."""
        await self.clear()
        for name, found in documents.items():
            await self._database[PREFIX + name].insert_many(found)

    async def documents(self) -> dict[str, list[dict[str, Any]]]:
        found = {}
        for name in await self._database.list_collection_names():
            documents = [one async for one in self._database[name].find().sort("_id")]
            if documents:
                found[name.removeprefix(PREFIX)] = documents
        return found

    def app(
        self,
        scenario: Scenario,
        ledger: Ledger,
        *,
        mode: str = "restore",
        late: bool = True,
        root: Any = None,
        **named: Any,
    ) -> App:
        """The scenario's app here. ``late``: a lease that is open in the history has run out."""
        return App(
            APP,
            root_agent=scenario.build(ledger) if root is None else root,
            config={
                "features": {"durable_workflow": True},
                "namespace": NAMESPACE,
                "version": "1",
                "replay": {"mode": mode},
                "shutdown": {"grace": "0s"},
                **scenario.config,
            },
            mongodb=self.uri,
            database=self.name,
            clock=ServerClock(offset_ms=LEASE_PASSED_MS if late else 0),
            **scenario.app(),
            **named,
        )


async def left_behind(app: App, session: str, executions: Iterable[str]) -> dict[str, Any]:
    """What a session has and its executions gave."""
    events = await app.sessions.events(user_id=USER, session_id=session)
    outs = [await app.executions.outcome(one) for one in executions]
    return {
        "events": [json.loads(event.model_dump_json(exclude_none=True)) for event in events],
        "state": (await app.sessions.get(user_id=USER, session_id=session)).to_dict()["state"],
        "output": [[out.status, out.response, out.to_dict()["output"]] for out in outs],
    }
