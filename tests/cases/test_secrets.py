"""Row D5: with keys, nothing that users wrote is in the server's files, nor in a log line.

Everything that a run can leave is planted with one word and run on a server that neither compresses
nor hides what it writes. The same search finds what the same run leaves without keys.
"""

from __future__ import annotations

import base64
import logging
import mmap
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from pymongo import MongoClient

from durable_adk import App, InvalidAnswer, KeyMissing, MongoArtifactService
from durable_adk.adk.scripted_model import calls, says
from durable_adk.model import codec
from tests.faults.catalogue import agent
from tests.shapes.credentials import answer as credential_for
from tests.shapes.credentials import api_key
from tests.support.lives import Ledger
from tests.support.mongo import ROOT, run_name
from tests.support.programs import run_script

KEYS = {"k1": base64.b64encode(os.urandom(32)).decode()}
PIN = {"pin": "0007", "cents": 5}
"""Guessable arguments: a bare digest of them would give them away."""


@pytest.fixture(scope="module")
def raw_server() -> Iterator[tuple[str, Path]]:
    """A mongod whose files can be read: its URI and their folder."""
    name = f"{run_name()}.raw"
    on_disk = {"DURABLE_MONGO_MEMORY": ""}  # where the search looks
    started = run_script("mongo.sh", "start", "--name", name, "--uncompressed", **on_disk)
    assert started.returncode == 0, started.stderr
    yield started.stdout.strip(), ROOT / ".durable" / "mongo" / name
    run_script("mongo.sh", "stop", "--name", name)


def found_in(uri: str, folder: Path, needles: Sequence[bytes]) -> dict[bytes, list[str]]:
    """In which files of a server each of these is."""
    with MongoClient(uri) as client:
        client.admin.command("fsync")  # a checkpoint: collections too, not only the journal
    found: dict[bytes, list[str]] = {needle: [] for needle in needles}
    for path in sorted(one for one in folder.rglob("*") if one.is_file() and one.stat().st_size):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for needle, where in found.items():
                if data.find(needle) >= 0:
                    where.append(path.name)
    return found


def program(ledger: Ledger, secret: str) -> LlmAgent:
    """Leaves a secret wherever a run can leave one."""

    async def keep(note: str, tool_context: Any) -> dict[str, str]:
        """Keep a note."""
        ledger.add("tool", "keep")
        tool_context.state["note"] = note
        tool_context.state["user:note"] = note
        part = types.Part.from_text(text=f"{note} " * 400)
        meta = {"about": note}
        await tool_context.save_artifact(filename="f.txt", artifact=part, custom_metadata=meta)
        return {"kept": note, "large": f"{note} " * 200_000}

    async def fail(note: str) -> str:
        """Fail."""
        raise ValueError(f"cannot {note}")

    async def pay(pin: str, cents: int, card: str) -> str:
        """Pay."""
        ledger.add("tool", "pay", card)
        return f"paid by {card}"

    async def fetch(q: str, credential: AuthCredential) -> str:
        """Fetch."""
        ledger.add("tool", "fetch", credential.api_key)
        return q

    async def later(note: str) -> None:
        """Answer later."""

    return agent(
        ledger,
        "root",
        calls(("keep", {"note": secret}), ("fail", {"note": secret})),
        calls(*(("pay", {**PIN, "card": f"{secret} {n}"}) for n in (1, 2))),
        calls(("later", {"note": secret}), ("fetch", {"q": secret})),
        says(f"said {secret}"),
        tools=[
            keep,
            fail,
            FunctionTool(pay, require_confirmation=True),
            later_tool(later),
            AuthenticatedFunctionTool(func=fetch, auth_config=api_key()),
        ],
        on_tool_error_callback=lambda tool, args, tool_context, error: {"failed": str(error)},
    )


def later_tool(fn: Any) -> Any:
    from google.adk.tools.long_running_tool import LongRunningFunctionTool

    return LongRunningFunctionTool(fn)


def reply(wait: Any, secret: str) -> Any:
    if wait.kind == "adk_request_credential":
        given = credential_for(wait.to_dict())
        given["exchangedAuthCredential"]["apiKey"] = secret
        return given
    return {"confirmed": True} if wait.kind == "adk_request_confirmation" else {"note": secret}


async def run(app: App, secret: str) -> list[Any]:
    """Two turns and one that is given up; gives every wait."""
    waits: list[Any] = []
    named = {"user_id": "u", "session_id": "s"}
    out = await app.invoke(message=f"go {secret}", state_delta={"given": secret}, **named)
    while out.status == "suspended":
        waits += out.waits
        answers = {wait.id: reply(wait, secret) for wait in out.waits}
        out = await app.resume(out.execution_id, answers)
    assert (out.status, out.response) == ("completed", f"said {secret}"), out.error
    queued = await app.submit(message=f"more {secret}", **named)
    await app.cancel(queued.id, secret)
    return waits


@pytest.fixture
async def make(raw_server: tuple[str, Path]) -> AsyncIterator[Any]:
    apps: list[App] = []

    def make(root: Any, name: str, **config: Any) -> App:
        settings = {
            "features": {"durable_workflow": True},
            "payload": {"compress_above": "never"},
            **config,
        }
        apps.append(
            App(
                name,
                root_agent=root,
                config=settings,
                mongodb=raw_server[0],
                artifact_service=MongoArtifactService(),
            )
        )
        return apps[-1]

    yield make
    for app in apps:
        await app.close()


async def test_no_file_of_the_server_and_no_log_line_holds_a_secret(
    raw_server: tuple[str, Path], make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="durable_adk")
    secret, ledger = f"planted{os.urandom(8).hex()}", Ledger(tmp_path / "ledger")
    app = make(
        program(ledger, secret), "sealed", encryption={"keys": KEYS}, redact=["card", "note"]
    )
    waits = await run(app, secret)
    assert [wait.kind for wait in waits].count("adk_request_credential") == 1
    shown = [wait.tool_call.args for wait in waits if wait.tool_call]
    assert {"note": "[redacted]"} in shown
    assert shown.count({**PIN, "card": "[redacted]"}) == 2  # and they stay two calls:
    assert {row for row in ledger.rows() if row[:2] == ("tool", "pay")} == {
        ("tool", "pay", f"{secret} {n}") for n in (1, 2)
    }
    assert ("tool", "fetch", secret) in ledger.rows()
    digests = [
        codec.digest(codec.encode(value))
        for value in (["pay", {**PIN, "card": f"{secret} 1"}], {"note": secret})
    ]
    needles = [secret.encode(), secret.encode("utf-16-le"), base64.b64encode(secret.encode())[:-4]]
    needles += [text.encode() for text in digests] + [bytes.fromhex(text) for text in digests]
    found = found_in(*raw_server, needles)
    assert {needle: where for needle, where in found.items() if where} == {}
    lines = [r for r in caplog.records if r.name.startswith("durable_adk")]
    assert secret not in "\n".join(f"{r.getMessage()} {r.exc_text} {vars(r)}" for r in lines)


async def test_the_same_search_finds_what_is_not_encrypted(
    raw_server: tuple[str, Path], make: Any, tmp_path: Path
) -> None:
    control, ledger = f"control{os.urandom(8).hex()}", Ledger(tmp_path / "ledger")
    root = program(ledger, control)
    root.tools.pop()  # the one that asks for a credential
    app = make(root, "plain")
    await run(app, control)
    digest = codec.digest(codec.encode(["pay", {**PIN, "card": f"{control} 1"}]))
    found = found_in(*raw_server, [control.encode(), bytes.fromhex(digest)])
    for needle, where in found.items():
        assert any(name.startswith("collection-") for name in where), (needle, where)
        assert any(name.startswith("WiredTigerLog") for name in where), (needle, where)


async def test_a_credential_that_does_not_fit_is_refused_and_not_quoted(
    make: Any, tmp_path: Path
) -> None:
    secret, ledger = f"planted{os.urandom(8).hex()}", Ledger(tmp_path / "ledger")
    root = program(ledger, secret)
    app = make(root, "refusing", encryption={"keys": KEYS})
    out = await app.invoke(user_id="u", message="go")
    while not any(wait.kind == "adk_request_credential" for wait in out.waits):
        answers = {wait.id: reply(wait, secret) for wait in out.waits}
        out = await app.resume(out.execution_id, answers)
    answers = {wait.id: reply(wait, secret) for wait in out.waits}
    (asked,) = [wait for wait in out.waits if wait.kind == "adk_request_credential"]
    for wrong in ({"apiKey": secret}, [secret], 7, None):
        with pytest.raises(InvalidAnswer, match="expected ADK's AuthConfig") as refused:
            await app.resume(out.execution_id, {**answers, asked.id: wrong})
        assert secret not in str(refused.value)
    await app.answer(asked.id, answers[asked.id])
    schema = (await app.executions.outcome(out.execution_id)).resume_schema
    assert secret not in str(schema["properties"][asked.id])
    out = await app.resume(out.execution_id, answers)
    assert out.status == "completed"


async def test_keys_are_rotated_below_what_runs_and_waits(
    raw_server: tuple[str, Path], make: Any, tmp_path: Path
) -> None:
    secret, ledger = f"planted{os.urandom(8).hex()}", Ledger(tmp_path / "ledger")
    new = {"k2": base64.b64encode(os.urandom(32)).decode()}

    def app(keys: dict[str, str], **more: bool) -> App:
        return make(program(ledger, secret), "rotating", encryption={"keys": keys, **more})

    out = await app(KEYS).invoke(user_id="u", message="go", execution_id="e")
    both = app({**new, **KEYS})
    assert out.status == "suspended"
    done = await both.reencrypt()
    assert 0 < done.rewritten <= done.seen
    out = await both.resume("e", {wait.id: reply(wait, secret) for wait in out.waits})
    assert out.status == "suspended"
    assert (await both.reencrypt()).rewritten == 0
    with pytest.raises(KeyMissing, match="'k2'"):  # a worker that was left behind
        await app(KEYS).resume("e", {wait.id: reply(wait, secret) for wait in out.waits})
    last = app(new, read_plain=False)
    out = await last.resume("e", {wait.id: reply(wait, secret) for wait in out.waits})
    assert (out.status, out.response) == ("completed", f"said {secret}")


async def test_what_is_under_a_key_that_is_not_here_is_kept_and_goes_on_with_it(
    raw_server: tuple[str, Path], make: Any, tmp_path: Path
) -> None:
    """A key that was removed too early: the message is under the new one, its records are not."""
    secret, ledger = f"planted{os.urandom(8).hex()}", Ledger(tmp_path / "ledger")
    new = {"k2": base64.b64encode(os.urandom(32)).decode()}

    def app(keys: dict[str, str]) -> App:
        return make(program(ledger, secret), "early", encryption={"keys": keys})

    out = await app(KEYS).invoke(user_id="u", message="go", execution_id="e")
    answers = {wait.id: reply(wait, secret) for wait in out.waits}
    both = app({**new, **KEYS})
    await both.reencrypt()
    with MongoClient(raw_server[0]) as client:  # one document as it was before
        steps = client["durable_adk"]["durable_steps"]
        run = client["durable_adk"]["durable_executions"].find_one({"app": "early"})["run"]
        mine = {"_id": {"$regex": f"^{run}:"}}
        assert steps.update_many(mine, {"$set": {"ev.key": "k1"}}).modified_count == 1
        with pytest.raises(KeyMissing, match="'k1'"):
            await app(new).resume("e", answers)
        steps.update_many(mine, {"$set": {"ev.key": "k2"}})
    found = await both.executions.get("e")
    assert (found.status, found.error.type) == ("stuck", "KeyMissing")
    await both.retry("e")
    out = await both.resume("e", answers)
    assert out.status == "suspended"
