"""When an App opens and closes, on which loop, around which root."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import motor.motor_asyncio
import pymongo
import pytest
from google.adk.tools import google_search

from durable_adk import App, ConfigError, DurabilityDisabled, Unavailable, UnsupportedNode
from durable_adk.testing import memory_client
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import ON, MakeApp
from tests.support.ids import shown


def in_a_fresh_loop(work: Callable[[], Any]) -> Any:
    """Run a coroutine function on another thread and loop."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(asyncio.run(work()))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_making_an_app_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(pymongo.AsyncMongoClient, "__init__", refuse)
    App("desk", root_agent=agents.talker(), config=ON, mongodb="mongodb://nowhere:1/")


def test_an_app_may_be_made_and_shown_without_a_loop() -> None:
    app = App("desk", config=ON, mongodb="mongodb://user:secret@host")
    assert repr(app) == "<App 'desk' namespace='default' closed>"


# ---------------------------------------------------------------- switched off


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


OFF: dict[str, str | None] = {
    "no file": None,
    "an empty file": "",
    "the key is missing": "namespace: a\n",
    "false": "features: {durable_workflow: false}\n",
}


@pytest.mark.parametrize("text", OFF.values(), ids=OFF)
async def test_without_the_feature_the_first_call_names_file_and_key(
    empty_folder: Path, text: str | None
) -> None:
    if text is not None:
        (empty_folder / "agent.yaml").write_text(text)
    app = App("desk", root_agent=agents.talker(), mongodb=memory_client())
    async with app:
        with pytest.raises(DurabilityDisabled) as caught:
            await app.invoke(user_id="u", message="hi")
    assert caught.value.subject == "agent.yaml: features.durable_workflow"
    assert "features.durable_workflow: true" in caught.value.remedy


async def test_without_the_feature_every_call_says_so(stored: Callable[[Any], Any]) -> None:
    client = memory_client()
    app = App("desk", root_agent=agents.talker(), config={}, mongodb=client)
    calls = [
        app.invoke(user_id="u", message="hi"),
        app.submit(user_id="u", message="hi"),
        anext(app.stream(user_id="u", message="hi")),
        app.resume("e"),
        anext(app.resume_stream("e")),
        app.answer("e~" + "0" * 20, 1),
        app.cancel("e"),
        app.retry("e"),
        app.give_up("e"),
        app.recover(),
        app.worker().run(),
        app.executions.get("e"),
        app.sessions.create("u"),
        app.waits.list(),
    ]
    for call in calls:
        with pytest.raises(DurabilityDisabled, match=r"config=: features\.durable"):
            await call
    assert await stored(client) == 0


async def test_a_file_switches_it_on(empty_folder: Path) -> None:
    (empty_folder / "agent.yaml").write_text("features: {durable_workflow: true}\n")
    async with App("desk", root_agent=agents.talker(), mongodb=memory_client()) as app:
        assert (await app.invoke(user_id="u", message="hi")).response == "hello"


def test_a_malformed_file_is_refused_when_the_app_is_made(empty_folder: Path) -> None:
    (empty_folder / "agent.yaml").write_text("features: [durable_workflow\n")
    with pytest.raises(ConfigError, match=r"agent\.yaml: malformed YAML at line"):
        App("desk")


# ---------------------------------------------------------------- the root


RUNNING: dict[str, Callable[[App], Any]] = {
    "invoke": lambda app: app.invoke(user_id="u", message="hi"),
    "stream": lambda app: anext(app.stream(user_id="u", message="hi")),
    "resume": lambda app: app.resume("e"),
    "resume_stream": lambda app: anext(app.resume_stream("e")),
    "cancel": lambda app: app.cancel("e"),
    "give_up": lambda app: app.give_up("e"),
    "recover": lambda app: app.recover(),
    "worker": lambda app: app.worker().run(),
    "runner": lambda app: anext(app.runner.run_async(user_id="u", session_id="s")),
}


@pytest.mark.parametrize("call", RUNNING.values(), ids=RUNNING)
async def test_what_runs_the_agent_says_how_to_give_the_app_one(
    make_app: MakeApp, call: Callable[[App], Any]
) -> None:
    app = make_app()
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"has no root agent.*root_agent=.*@app\.entrypoint"):
            await call(app)
        await app.open()


async def test_an_app_without_a_root_reads_answers_submits_and_retries(place: Any) -> None:
    async with App("desk", root_agent=agents.two_and_a_question([]), config=ON, **place) as app:
        asked = await app.invoke(user_id="u", session_id="s", execution_id="e", message="go")
        desk = App("desk", config=ON, **place)
        async with desk:
            assert await desk.executions.outcome("e") == asked
            assert (await desk.executions.get("e")).open_waits == 3
            assert [record.id for record in await desk.executions.list()] == ["e"]
            assert await desk.executions.activities("e")
            assert await desk.executions.events("e") == asked.events
            assert [wait.id for wait in await desk.waits.list()] == [w.id for w in asked.waits]
            assert await desk.sessions.events("u", "s") == asked.events
            assert (await desk.sessions.get("u", "s")).id == "s"
            for wait_id, value in yes(*asked.waits).items():
                receipt = await desk.answer(wait_id, value)
            assert receipt.runnable
            await desk.submit(user_id="u", session_id="s2", execution_id="e2", message="go")
            assert (await desk.retry("e2")).status == "queued"
        assert {out.status for out in await app.recover()} == {"completed", "suspended"}


async def test_an_entrypoint_after_the_first_call_is_told_when_it_should_have_come(
    make_app: MakeApp,
) -> None:
    app = make_app()
    await app.executions.list()
    app.entrypoint(agents.talker)
    with pytest.raises(ConfigError, match="before it had its root agent"):
        await app.invoke(user_id="u", message="hi")
    await app.close()
    assert (await app.invoke(user_id="u", message="hi")).status == "completed"


@pytest.mark.parametrize("root", ["agent", 5, object(), agents.talker], ids=shown)
async def test_a_root_that_is_no_node_is_refused(make_app: MakeApp, root: Any) -> None:
    with pytest.raises(ConfigError, match="root_agent"):
        await make_app(root).open()


async def test_an_entrypoint_runs_once_at_open(make_app: MakeApp) -> None:
    app, built = make_app(), []

    @app.entrypoint
    def build() -> Any:
        built.append(1)
        return agents.talker()

    assert built == []
    await app.open()
    await app.invoke(user_id="u", message="hi")
    await app.close()
    out = await app.invoke(user_id="u", message="hi")
    assert (out.response, built) == ("hello", [1])


async def test_an_entrypoint_may_be_async(make_app: MakeApp) -> None:
    app = make_app()

    @app.entrypoint
    async def build() -> Any:
        return agents.talker()

    assert (await app.invoke(user_id="u", message="hi")).response == "hello"


async def test_an_entrypoint_that_returns_nothing_is_refused(make_app: MakeApp) -> None:
    app = make_app()
    app.entrypoint(lambda: None)
    with pytest.raises(ConfigError, match="returned nothing"):
        await app.open()


def test_one_app_has_one_root() -> None:
    app = App("desk", config=ON)
    app.entrypoint(agents.talker)
    with pytest.raises(ConfigError, match="already"):
        app.entrypoint(agents.talker)
    with pytest.raises(ConfigError, match="already"):
        App("desk", root_agent=agents.talker(), config=ON).entrypoint(agents.talker)
    with pytest.raises(ConfigError, match="no function"):
        App("desk", config=ON).entrypoint(5)  # type: ignore[type-var]


async def test_what_cannot_be_durable_is_refused_before_anything_is_stored(
    make_app: MakeApp, stored: Callable[[Any], Any]
) -> None:
    client = memory_client()
    below = agents.talker(name="below", description="below")
    inner = agents.talker(name="inner", mode="single_turn", sub_agents=[below])
    root = agents.talker(name="root", sub_agents=[inner])
    with pytest.raises(UnsupportedNode, match="root/inner"):
        await make_app(root, mongodb=client).invoke(user_id="u", message="hi")
    assert await stored(client) == 0


async def test_a_model_is_found_by_its_name(make_app: MakeApp) -> None:
    assert make_app().llm("gemini-2.5-flash").model == "gemini-2.5-flash"
    with pytest.raises(ConfigError, match="no-such-model"):
        make_app().llm("no-such-model")
    with pytest.raises(ConfigError, match="expected text"):
        make_app().llm(5)  # type: ignore[arg-type]


async def test_app_tools_feed_the_entrypoint(make_app: MakeApp) -> None:
    app, log = make_app(), agents.Log()

    @app.tool
    def pay(amount: int) -> dict[str, Any]:
        """Pay somebody."""
        log.append(amount)
        return {"paid": amount}

    @app.entrypoint
    def build() -> Any:
        agent = agents.plain_payer([])
        agent.tools = app.tools()
        return agent

    out = await app.invoke(user_id="u", message="hi")
    assert (out.response, log) == ("paid", [1])


# ---------------------------------------------------------------- MongoDB


async def test_without_a_mongodb_the_first_call_says_how_to_name_one(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MONGODB_URI", raising=False)
    app = App("desk", root_agent=agents.talker(), config=ON)
    with pytest.raises(ConfigError, match="MONGODB_URI") as caught:
        await app.invoke(user_id="u", message="hi")
    assert "mongodb.uri" in caught.value.subject


async def test_the_argument_wins_over_config_and_environment(
    monkeypatch: pytest.MonkeyPatch, replica_set_uri: str, database: str
) -> None:
    monkeypatch.setenv("MONGODB_URI", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100")
    config = {**ON, "mongodb": {"uri": "mongodb://127.0.0.1:2/", "database": "elsewhere"}}
    name = f"{database}_argument"
    app = App(
        "desk", root_agent=agents.talker(), config=config, mongodb=replica_set_uri, database=name
    )
    async with app:
        await app.invoke(user_id="u", message="hi")
    async with pymongo.AsyncMongoClient(replica_set_uri) as client:
        assert await client[name]["durable_executions"].count_documents({}) == 1
        assert "elsewhere" not in await client.list_database_names()


async def test_the_environment_is_used_last(
    monkeypatch: pytest.MonkeyPatch, replica_set_uri: str, database: str
) -> None:
    monkeypatch.setenv("MONGODB_URI", replica_set_uri)
    app = App("desk", root_agent=agents.talker(), config=ON, database=f"{database}_env")
    async with app:
        assert (await app.invoke(user_id="u", message="hi")).status == "completed"


def with_path(uri: str, path: str) -> str:
    """The same connection string with a database in it."""
    head, _, options = uri.partition("?")
    return f"{head.rstrip('/')}/{path}?{options}"


@pytest.mark.parametrize("by", ["argument", "config", "environment"])
async def test_the_path_of_the_connection_string_names_the_database(
    monkeypatch: pytest.MonkeyPatch, replica_set_uri: str, database: str, by: str
) -> None:
    monkeypatch.delenv("MONGODB_URI", raising=False)
    name = f"{database}_path_{by}"
    uri = with_path(replica_set_uri, name)
    given: dict[str, Any] = {"config": ON}
    match by:
        case "argument":
            given["mongodb"] = uri
        case "config":
            given["config"] = {**ON, "mongodb": {"uri": uri}}
        case "environment":
            monkeypatch.setenv("MONGODB_URI", uri)
    async with App("desk", root_agent=agents.talker(), **given) as app:
        await app.invoke(user_id="u", message="hi")
    async with pymongo.AsyncMongoClient(replica_set_uri) as client:
        assert await client[name]["durable_executions"].count_documents({}) == 1


@pytest.mark.parametrize("by", ["argument", "config"])
async def test_a_database_that_is_named_wins_over_the_path(
    replica_set_uri: str, database: str, by: str
) -> None:
    path, name = f"{database}_unused", f"{database}_named_{by}"
    config = {**ON, "mongodb": {"database": name if by == "config" else f"{database}_unused2"}}
    app = App(
        "desk",
        root_agent=agents.talker(),
        config=config,
        mongodb=with_path(replica_set_uri, path),
        database=name if by == "argument" else None,
    )
    async with app:
        await app.invoke(user_id="u", message="hi")
    async with pymongo.AsyncMongoClient(replica_set_uri) as client:
        assert await client[name]["durable_executions"].count_documents({}) == 1
        assert not {path, f"{database}_unused2"} & set(await client.list_database_names())


async def test_a_mongodb_that_is_down_is_unavailable() -> None:
    config = {**ON, "lease": {"ttl": "3s"}}  # each operation takes less than a third of it
    app = App("desk", root_agent=agents.talker(), config=config, mongodb="mongodb://127.0.0.1:1/")
    with pytest.raises(Unavailable, match=r"at 127\.0\.0\.1:1 "):
        await app.invoke(user_id="u", message="hi")


async def test_a_mongodb_that_refuses_the_credentials_is_a_config_error(
    replica_set_uri: str,
) -> None:
    uri = replica_set_uri.replace("mongodb://", "mongodb://nobody:secret@", 1)
    app = App("desk", root_agent=agents.talker(), config=ON, mongodb=uri)
    with pytest.raises(ConfigError) as caught:
        await app.invoke(user_id="u", message="hi")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["http://h", "h:27017", ""])
def test_text_that_is_no_connection_string_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="mongodb="):
        App("desk", config=ON, mongodb=text)


@pytest.mark.parametrize("client", [5, object(), {}], ids=shown)
async def test_what_is_no_client_is_a_config_error(client: Any) -> None:
    app = App("desk", root_agent=agents.talker(), config=ON, mongodb=client)
    with pytest.raises(ConfigError, match="mongodb"):
        await app.invoke(user_id="u", message="hi")


async def test_a_given_client_is_left_open(replica_set_uri: str, database: str) -> None:
    async with pymongo.AsyncMongoClient(replica_set_uri) as client:
        name = f"{database}_given"
        for _ in range(2):  # closing does not take it away: the App opens again
            async with App(
                "desk", root_agent=agents.talker(), config=ON, mongodb=client, database=name
            ) as app:
                await app.invoke(user_id="u", message="hi")
        assert await client[name]["durable_executions"].count_documents({}) == 2


async def test_a_motor_client_works_the_same_and_is_left_open(
    replica_set_uri: str, database: str
) -> None:
    client: Any = motor.motor_asyncio.AsyncIOMotorClient(replica_set_uri)
    name, log = f"{database}_motor", agents.Log()
    root = agents.two_and_a_question(log)
    async with App("desk", root_agent=root, config=ON, mongodb=client, database=name) as app:
        out = await app.invoke(user_id="u", message="go")
        done = await app.resume(out.execution_id, agents.yes(*out.waits))
    assert (done.status, len(log)) == ("completed", 3)
    assert await client[name]["durable_executions"].count_documents({}) == 1
    client.close()


async def test_a_client_of_another_loop_is_a_config_error(
    replica_set_uri: str, database: str
) -> None:
    async with pymongo.AsyncMongoClient(replica_set_uri) as client:
        await client.admin.command("ping")

        async def elsewhere() -> None:
            app = App("desk", root_agent=agents.talker(), config=ON, mongodb=client)
            await app.invoke(user_id="u", message="hi")

        with pytest.raises(ConfigError, match="loop"):
            await asyncio.to_thread(in_a_fresh_loop, elsewhere)


# ---------------------------------------------------------------- loops


async def test_an_open_app_refuses_another_loop(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    await app.open()

    async def elsewhere() -> None:
        await app.invoke(user_id="u", message="hi")

    with pytest.raises(ConfigError, match="open on another event loop"):
        await asyncio.to_thread(in_a_fresh_loop, elsewhere)
    with pytest.raises(ConfigError, match="open on another event loop"):
        await asyncio.to_thread(in_a_fresh_loop, app.close)


def test_a_closed_app_may_be_opened_on_another_loop(replica_set_uri: str, database: str) -> None:
    app = App(
        "desk",
        root_agent=agents.talker(),
        config=ON,
        mongodb=replica_set_uri,
        database=f"{database}_loops",
    )

    async def once() -> str | None:
        async with app:
            return (await app.invoke(user_id="u", session_id="s", message="hi")).response

    assert [asyncio.run(once()) for _ in range(2)] == ["hello", "hello"]


async def test_first_calls_at_once_open_once(make_app: MakeApp) -> None:
    built: list[int] = []
    app = make_app()

    @app.entrypoint
    async def build() -> Any:
        built.append(1)
        await asyncio.sleep(0)
        return agents.talker()

    outs = await asyncio.gather(*(app.invoke(user_id="u", message="hi") for _ in range(5)))
    assert ({out.status for out in outs}, built) == ({"completed"}, [1])


async def test_an_app_that_failed_to_open_may_try_again(make_app: MakeApp) -> None:
    app, roots = make_app(), iter([None, agents.talker()])
    app.entrypoint(lambda: next(roots))
    with pytest.raises(ConfigError):
        await app.open()
    assert (await app.invoke(user_id="u", message="hi")).status == "completed"


async def test_closing_twice_and_closing_unopened_do_nothing(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    await app.close()
    await app.open()
    await app.close()
    await app.close()


async def test_no_task_and_no_thread_is_left_behind(replica_set_uri: str, database: str) -> None:
    def running() -> set[str]:
        # The loop's own threads, which resolve host names, stay until the loop ends.
        names = {thread.name for thread in threading.enumerate()}
        return {name for name in names if not name.startswith("asyncio_")}

    threads, tasks = running(), asyncio.all_tasks()
    async with App(
        "desk",
        root_agent=agents.talker(),
        config=ON,
        mongodb=replica_set_uri,
        database=f"{database}_left",
    ) as app:
        await app.invoke(user_id="u", message="hi")
    # A thread of an earlier test's client may end meanwhile; none may be new.
    assert running() - threads == set()
    assert asyncio.all_tasks() - tasks == set()


def test_the_working_folder_is_left_alone(empty_folder: Path) -> None:
    App("desk", root_agent=agents.talker(tools=[google_search]), config=ON)
    assert list(empty_folder.iterdir()) == []
