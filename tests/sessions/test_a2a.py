"""ADK's A2A server and executor, unmodified, on a durable runner.

Needs ``a2a-sdk[http-server]``, the extra ``a2a`` of google-adk.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from durable_adk import DurableRunner
from durable_adk.testing import memory_client
from tests.sessions.test_api_server import payer
from tests.support.lives import Ledger

pytest.importorskip("a2a", reason="a2a-sdk[http-server] is not installed", exc_type=ImportError)

from a2a.server.tasks import InMemoryTaskStore
from google.adk.a2a.executor.a2a_agent_executor import A2aAgentExecutor
from google.adk.a2a.utils.agent_to_a2a import to_a2a

Place = dict[str, Any]


@pytest.fixture(params=["memory", "mongod"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where a runner keeps its data: new and empty for each test."""
    if request.param == "memory":
        return {"mongodb": memory_client()}
    uri = request.getfixturevalue("replica_set_uri")
    database = request.getfixturevalue("database")
    return {"mongodb": uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture(params=[False, True], ids=["first executor", "new executor"])
def executor(request: pytest.FixtureRequest) -> Any:
    """ADK has two; a server takes the new one when the client asks for it."""
    is_new = request.param
    return lambda runner: A2aAgentExecutor(runner=runner, force_new_version=is_new)


class Client:
    """Speaks A2A with one server; a conversation is a context."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def send(self, part: dict[str, Any], task: dict[str, Any] | None = None) -> Any:
        """The task as it stands after a message."""
        message = {
            "kind": "message",
            "messageId": uuid.uuid4().hex,
            "role": "user",
            "parts": [part],
        }
        if task is not None:
            message |= {"contextId": task["contextId"], "taskId": task["id"]}
        call = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": {}}
        call["params"] = {"message": message}
        found = (await self._http.post("/", json=call)).json()
        assert "error" not in found, found
        return found["result"]


@asynccontextmanager
async def served(
    place: Place, ledger: Ledger, executor: Any, tasks: InMemoryTaskStore
) -> AsyncIterator[Client]:
    """One life of a server, over HTTP."""
    agent = payer(ledger)
    others = asyncio.all_tasks()
    async with DurableRunner(agent=agent, app_name="desk", **place) as runner:
        api = to_a2a(agent, runner=runner, task_store=tasks, agent_executor_factory=executor)
        transport = httpx.ASGITransport(api)
        async with (
            api.router.lifespan_context(api),
            httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as http,
        ):
            yield Client(http)
    left = asyncio.all_tasks() - others  # the SDK's: it has no shutdown, a process just ends
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def text(words: str) -> dict[str, Any]:
    return {"kind": "text", "text": words}


def parts_of(task: Any) -> list[Any]:
    message = task["status"].get("message") or {}
    return [*message.get("parts", []), *(p for a in task.get("artifacts", []) for p in a["parts"])]


def asked(task: Any) -> Any:
    (part,) = [
        part
        for part in parts_of(task)
        if part.get("metadata", {}).get("adk_type") == "function_call"
        and part["data"]["name"] == "adk_request_confirmation"
    ]
    return part["data"]


def answer(call: Any, confirmed: bool) -> dict[str, Any]:
    given = {"id": call["id"], "name": call["name"], "response": {"confirmed": confirmed}}
    return {"kind": "data", "data": given, "metadata": {"adk_type": "function_response"}}


async def test_a_plain_turn_completes(place: Place, ledger: Ledger, executor: Any) -> None:
    async with served(place, ledger, executor, InMemoryTaskStore()) as client:
        task = await client.send(text("hi"))
    assert task["status"]["state"] == "completed"
    assert [part.get("text") for part in parts_of(task)] == ["hello"]


async def test_a_turn_suspends_and_a_message_to_the_next_server_resumes_it(
    place: Place, ledger: Ledger, executor: Any
) -> None:
    tasks = InMemoryTaskStore()  # A2A's own store of tasks is not the agent's
    async with served(place, ledger, executor, tasks) as client:
        waiting = await client.send(text("pay"))
        assert waiting["status"]["state"] == "input-required"
        call = asked(waiting)
    before = ledger.rows()
    assert ("pay", 7) not in before
    async with served(place, ledger, executor, tasks) as client:
        ended = await client.send(answer(call, confirmed=True), waiting)
    assert ended["status"]["state"] == "completed"
    assert "paid" in [part.get("text") for part in parts_of(ended)]
    assert ledger.rows()[len(before) :] == [("pay", 7), ("model", "pay")]


async def test_a_message_to_a_waiting_turn_fails_and_says_what_is_open(
    place: Place, ledger: Ledger, executor: Any
) -> None:
    async with served(place, ledger, executor, InMemoryTaskStore()) as client:
        waiting = await client.send(text("pay"))
        before = ledger.rows()
        busy = await client.send(text("hello?"), {**waiting})
    if busy["status"]["state"] == "input-required":  # the new executor asks for the answer first
        assert "not provided a function response" in parts_of(busy)[0]["text"]
    else:
        assert busy["status"]["state"] == "failed"
        assert "open waits" in parts_of(busy)[0]["text"]
    assert ledger.rows() == before
