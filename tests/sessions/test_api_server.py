"""ADK's own servers, unmodified, over durable sessions: real HTTP, real processes, real MongoDB."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import Request
from fastapi.responses import JSONResponse
from google.adk.artifacts import InMemoryArtifactService
from google.adk.auth.credential_service.in_memory_credential_service import (
    InMemoryCredentialService,
)
from google.adk.cli.api_server import ApiServer
from google.adk.cli.dev_server import DevServer
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader
from google.adk.evaluation.in_memory_eval_sets_manager import InMemoryEvalSetsManager
from google.adk.evaluation.local_eval_set_results_manager import LocalEvalSetResultsManager
from google.adk.memory import InMemoryMemoryService

from durable_adk import DurableError, DurableRunner, DurableSessionService
from tests.support import forks
from tests.support.lives import Ledger

SESSIONS = "/apps/desk/users/u/sessions"


def payer(ledger: Ledger) -> Any:
    """Pays when it is told to and somebody confirms; talks otherwise."""
    from google.adk.agents import LlmAgent
    from google.adk.tools.function_tool import FunctionTool

    from durable_adk.testing import ScriptedModel, calls, says

    def pay(amount: int) -> dict[str, int]:
        """Pay somebody."""
        ledger.add("pay", amount)
        return {"paid": amount}

    def choose(request: Any, _turn: int) -> Any:
        part = request.contents[-1].parts[0]
        ledger.add("model", part.text or part.function_response.name)
        if part.function_response is not None:
            return says("paid")
        if "pay" in part.text:
            return calls(("pay", {"amount": 7}))
        partial = [says("hel", partial=True), says("lo", partial=True)]
        return [*(partial if "slowly" in part.text else []), says("hello")]

    return LlmAgent(
        name="payer",
        model=ScriptedModel(script=choose),
        tools=[FunctionTool(pay, require_confirmation=True)],
    )


# ---------------------------------------------------------------- the server's process


def serve() -> None:
    """ADK's server over a durable runner and its sessions; prints its port."""
    given = json.load(sys.stdin)
    agent = payer(Ledger(Path(given["ledger"])))
    service = DurableSessionService(mongodb=given["uri"], database=given["database"])
    runner = DurableRunner(agent=agent, app_name="desk", session_service=service)

    class Loader(BaseAgentLoader):
        def load_agent(self, agent_name: str) -> Any:
            return agent

        def list_agents(self) -> list[str]:
            return ["desk"]

    @asynccontextmanager
    async def lifespan(_api: Any) -> AsyncIterator[None]:
        yield
        await service.close()

    folder = tempfile.mkdtemp()
    server = (DevServer if given["dev"] else ApiServer)(
        agent_loader=Loader(),
        session_service=service,
        memory_service=InMemoryMemoryService(),
        artifact_service=InMemoryArtifactService(),
        credential_service=InMemoryCredentialService(),
        eval_sets_manager=InMemoryEvalSetsManager(),
        eval_set_results_manager=LocalEvalSetResultsManager(agents_dir=folder),
        agents_dir=folder,
    )
    server.runner_dict["desk"] = runner
    api = server.get_fast_api_app(lifespan=lifespan)

    if given["explains"]:

        @api.exception_handler(DurableError)
        async def explain(_request: Request, error: DurableError) -> JSONResponse:
            return JSONResponse(status_code=409, content={"detail": str(error)})

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # before the port is told: whoever connects early waits
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(api, log_level="error")).run(sockets=[listening])


class Process:
    """A server in a process of its own, and a client of it."""

    def __init__(self, process: forks.Process, port: int) -> None:
        self.process = process
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)

    async def run(self, message: dict[str, Any], session_id: str = "s") -> httpx.Response:
        return await self.http.post("/run", json=body(message, session_id))

    async def run_sse(self, message: dict[str, Any], session_id: str = "s") -> list[Any]:
        found = await self.http.post(
            "/run_sse", json={**body(message, session_id), "streaming": True}
        )
        assert found.status_code == 200, found.text
        return [
            json.loads(line.removeprefix("data:"))
            for line in found.text.splitlines()
            if line.startswith("data:")
        ]

    async def session(self, session_id: str = "s") -> Any:
        found = await self.http.get(f"{SESSIONS}/{session_id}")
        return found.json() if found.status_code == 200 else found.status_code

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL


def body(message: dict[str, Any], session_id: str) -> dict[str, Any]:
    return {"appName": "desk", "userId": "u", "sessionId": session_id, "newMessage": message}


def text(words: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": words}]}


def answer(call: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    given = {"id": call["id"], "name": call["name"], "response": response}
    return {"role": "user", "parts": [{"functionResponse": given}]}


def asked(events: list[Any]) -> list[Any]:
    return [
        part["functionCall"]
        for event in events
        for part in event.get("content", {}).get("parts", [])
        if part.get("functionCall", {}).get("id") in event.get("longRunningToolIds", ())
    ]


def spoken(events: list[Any]) -> list[str]:
    return [
        part["text"]
        for event in events
        for part in event.get("content", {}).get("parts", [])
        if "text" in part
    ]


Start = Callable[..., Process]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
async def start(replica_set_uri: str, database: str, ledger: Ledger) -> AsyncIterator[Start]:
    """Start servers over one new database."""
    given = {"uri": replica_set_uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}
    started: list[Process] = []

    def begin(*, dev: bool = False, explains: bool = True) -> Process:
        told = {**given, "ledger": str(ledger.path), "dev": dev, "explains": explains}
        process = forks.begin(serve, json.dumps(told))
        started.append(Process(process, int(process.stdout.readline())))
        return started[-1]

    yield begin
    for server in started:
        await server.http.aclose()
        server.process.terminate()
        server.process.wait()
        server.process.stdout.close()
        server.process.stderr.close()


# ---------------------------------------------------------------- what a client sees


@pytest.mark.timeout(600)
async def test_a_turn_that_waits_outlives_its_server(start: Start, ledger: Ledger) -> None:
    first = await asyncio.to_thread(start)
    made = await first.http.post(SESSIONS, json={"sessionId": "s", "state": {"a": 1}})
    assert (made.status_code, made.json()["state"]) == (200, {"a": 1})
    taken = await first.http.post(SESSIONS, json={"sessionId": "s"})
    assert taken.status_code == 409

    assert spoken((await first.run(text("hi"))).json()) == ["hello"]
    streamed = await first.run_sse(text("slowly"))
    assert spoken(streamed) == ["hel", "lo", "hello"]
    assert [event.get("partial", False) for event in streamed] == [True, True, False]

    waiting = (await first.run(text("pay"))).json()
    (call,) = asked(waiting)
    assert call["name"] == "adk_request_confirmation"
    stored = await first.session()
    assert asked(stored["events"]) == [call]
    assert stored["state"] == {"a": 1}
    before = ledger.rows()
    assert [row for row in before if row[0] == "pay"] == []
    first.kill()

    second = await asyncio.to_thread(start)
    assert await second.session() == stored
    busy = await second.run(text("hello?"))
    assert busy.status_code == 409
    assert "is suspended; open waits" in busy.json()["detail"]
    ended = await second.run(answer(call, {"confirmed": True}))
    assert ended.status_code == 200
    assert spoken(ended.json()) == ["paid"]
    again = await second.run(answer(call, {"confirmed": True}))
    assert again.json() == ended.json()
    refused = await second.run(answer(call, {"confirmed": False}))
    assert refused.status_code == 409
    assert ledger.rows()[len(before) :] == [("pay", 7), ("model", "pay")]

    whole = await second.session()
    ids = [event["id"] for event in whole["events"]]
    assert ids[: len(stored["events"])] == [event["id"] for event in stored["events"]]
    assert ids[-len(ended.json()) :] == [event["id"] for event in ended.json()]
    assert whole["lastUpdateTime"] >= stored["lastUpdateTime"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agree", [True, False])
async def test_answers_to_two_servers_at_once_are_one_answer_or_one_conflict(
    start: Start, ledger: Ledger, agree: bool
) -> None:
    """W3, from two processes."""
    servers = [await asyncio.to_thread(start) for _ in range(2)]
    (call,) = asked((await servers[0].run(text("pay"))).json())
    found = await asyncio.gather(
        *(
            server.run(answer(call, {"confirmed": confirmed}))
            for server, confirmed in zip(servers, (True, agree), strict=True)
        )
    )
    paid = [row for row in ledger.rows() if row[0] == "pay"]
    if agree:
        assert [one.status_code for one in found] == [200, 200]
        assert found[0].json() == found[1].json()
        assert paid == [("pay", 7)]
        return
    assert sorted(one.status_code for one in found) == [200, 409]
    (refused,) = [one for one in found if one.status_code == 409]
    assert "already answered" in refused.json()["detail"]
    assert paid == ([("pay", 7)] if found[0].status_code == 200 else [])


@pytest.mark.timeout(600)
async def test_a_stream_suspends_and_another_one_answers(start: Start, ledger: Ledger) -> None:
    server = await asyncio.to_thread(start)
    (call,) = asked(await server.run_sse(text("pay")))
    assert spoken(await server.run_sse(answer(call, {"confirmed": True}))) == ["paid"]
    assert [row for row in ledger.rows() if row[0] == "pay"] == [("pay", 7)]
    (call,) = asked(await server.run_sse(text("pay")))
    (failed,) = await server.run_sse(text("hello?"))
    assert failed["error"].startswith("SessionBusy: ")
    assert "open waits" in failed["error"]


@pytest.mark.timeout(600)
async def test_sessions_are_listed_and_deleted(start: Start) -> None:
    server = await asyncio.to_thread(start)
    for name in ("one", "two"):
        await server.http.post(SESSIONS, json={"sessionId": name, "state": {"user:a": 1}})
    await server.run(text("hi"), "one")
    listed = (await server.http.get(SESSIONS)).json()
    assert [session["id"] for session in listed] == ["two", "one"]
    assert [session["state"] for session in listed] == [{"user:a": 1}] * 2
    assert [session["events"] for session in listed] == [[], []]
    gone = await server.http.delete(f"{SESSIONS}/one")
    assert gone.status_code == 200
    assert await server.session("one") == 404
    assert [session["id"] for session in (await server.http.get(SESSIONS)).json()] == ["two"]
    assert (await server.http.get("/apps/other/users/u/sessions")).json() == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("explains", [True, False])
async def test_what_would_write_past_an_execution_is_refused(start: Start, explains: bool) -> None:
    server = await asyncio.to_thread(start, explains=explains)
    status = 409 if explains else 500

    def check(refused: httpx.Response) -> None:
        assert refused.status_code == status
        if explains:
            assert "executions only; nothing was changed" in refused.json()["detail"]

    await server.http.post(SESSIONS, json={"sessionId": "s", "state": {"a": 1}})
    await server.run(text("hi"))
    before = await server.session()
    check(await server.http.patch(f"{SESSIONS}/s", json={"stateDelta": {"a": 2}}))
    assert await server.session() == before
    event = {"author": "user", "content": text("hi"), "invocationId": "i"}
    check(await server.http.post(SESSIONS, json={"sessionId": "new", "events": [event]}))
    # ADK's server has made the session by then; it is empty.
    made = await server.session("new")
    assert (made["events"], made["state"]) == ([], {})


@pytest.mark.timeout(600)
async def test_a_stored_session_becomes_an_eval_case(start: Start) -> None:
    """With the server of ``adk web``."""
    server = await asyncio.to_thread(start, dev=True)
    await server.run(text("hi"))
    (call,) = asked((await server.run(text("pay"))).json())
    await server.run(answer(call, {"confirmed": True}))
    sets = "/dev/apps/desk/eval-sets"
    made = await server.http.post(sets, json={"evalSet": {"eval_set_id": "e", "eval_cases": []}})
    assert made.status_code == 200, made.text
    added = await server.http.post(
        f"{sets}/e/add-session", json={"evalId": "case", "sessionId": "s", "userId": "u"}
    )
    assert added.status_code == 200, added.text
    found = await server.http.get("/dev/apps/desk/eval_sets/e/evals/case")
    hi, pay = found.json()["conversation"]
    assert hi["userContent"]["parts"][0]["text"] == "hi"
    # ADK's conversion keeps the last thing that the user said in a turn: the answer.
    assert pay["userContent"]["parts"][0]["functionResponse"]["name"] == call["name"]
    assert [turn["finalResponse"]["parts"][0]["text"] for turn in (hi, pay)] == ["hello", "paid"]
    called = [
        part["functionCall"]["name"]
        for event in pay["intermediateData"]["invocationEvents"]
        for part in event.get("content", {}).get("parts", [])
        if "functionCall" in part
    ]
    assert called == ["pay", "adk_request_confirmation"]
