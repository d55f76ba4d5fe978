"""Row R2: prompts that are never the same twice, in processes that die.

A recorded response is used all the same, with a warning that names what differs; where that is
asked for it is refused instead.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from google.adk.artifacts import InMemoryArtifactService
from google.adk.memory import InMemoryMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.load_artifacts_tool import LoadArtifactsTool
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types

from durable_adk.adk import prompts
from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import Tools, agent
from tests.support.lives import Case, Ledger, World


class Word(str):
    """A text whose sets print in another order in every process."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash((os.getpid(), str(self)))


def never_twice(_context: Any) -> str:
    words = {Word(letter) for letter in "abcdefgh"}
    return f"It is {time.time_ns()}. You are {uuid.uuid4()}. Speak of {words}."


class Remembers(InMemoryMemoryService):
    """Finds one thing more in each process."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        ledger.add("process")
        self._count = ledger.rows().count(("process",))

    async def search_memory(self, **_query: Any) -> SearchMemoryResponse:
        said = [
            types.Content(role="user", parts=[types.Part(text=f"said {number}")])
            for number in range(self._count)
        ]
        return SearchMemoryResponse(memories=[MemoryEntry(content=one) for one in said])


class Files(InMemoryArtifactService):
    """Lists files that come and go."""

    async def list_artifact_keys(self, **_of: Any) -> list[str]:
        return [f"{uuid.uuid4()}.txt"]


def forgetful(ledger: Ledger) -> Any:
    tools: list[Any] = [Tools(ledger).look, PreloadMemoryTool(), LoadArtifactsTool()]
    script = [calls(("look", {"q": "a"})), calls(("look", {"q": "b"})), says("done")]
    return agent(ledger, "root", *script, tools=tools, instruction=never_twice)


CASE = Case(
    build=forgetful,
    app=lambda ledger: {"memory_service": Remembers(ledger), "artifact_service": Files()},
    reentered=(("process",),),
)


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_a_prompt_of_clock_uuid_set_memory_and_files_uses_the_recorded_response(
    replica_set_uri: str, database: str, tmp_path: Path, mode: str
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    life = world.live(CASE, kill=(1, ("after: outcomes are recorded", 1)))
    assert life.killed_at
    assert life.status == ["completed"], life.error
    assert life.ledger[("model", "root", 0)] == 1, "the response that was recorded"
    assert life.ledger[("tool", "look", "a")] == 1
    assert life.ledger[("process",)] > 1


def test_where_it_is_asked_for_it_is_refused_and_says_what_differs(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    strict = {"replay": {"input_mismatch": {"model": "error"}}}
    case = Case(build=CASE.build, app=CASE.app, config=strict)
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    life = world.live(case, kill=(1, ("after: outcomes are recorded", 1)))
    assert life.status == ["stuck"]
    assert life.error is not None
    assert life.error["type"] == "ReplayMismatch"
    assert life.error["message"].count("a system instruction of ") == 2
    assert life.ledger[("model", "root", 0)] == 1
    assert life.ledger[("tool", "look", "a")] == 0


async def test_the_warning_names_what_differs(make_app, ledger, caplog, clock) -> None:
    tools = Tools(ledger)

    def root(*named: Any, instruction: str) -> Any:
        root = agent(ledger, "root", tools=list(named), instruction=instruction)
        root.model.script = [calls(("look", {"q": "a"})), RuntimeError("down")]
        return root

    await make_app(root(tools.look, instruction="be kind")).invoke(user_id="u", message="go")
    clock.advance(60_000)
    changed = root(tools.look, tools.slow, instruction="be very kind")
    changed.model.script = [calls(("look", {"q": "a"})), says("done")]
    with caplog.at_level(logging.WARNING, "durable_adk"):
        (out,) = await make_app(changed).recover()
    assert out.status == "completed"
    assert "is used for another input at 1|agent#1|1|model|1" in caplog.text
    assert "1 tools, asked" in caplog.text
    assert "2 tools, new: slow" in caplog.text


# ------------------------------------------------------------------ digests


class Named(BaseTool):
    def __init__(self, name: str) -> None:
        super().__init__(name=name, description="")


def request(
    *texts: str, instruction: str = "be kind", tools: tuple[str, ...] = ("look",)
) -> LlmRequest:
    made = LlmRequest(
        contents=[types.Content(role="user", parts=[types.Part(text=text)]) for text in texts],
        config=types.GenerateContentConfig(system_instruction=instruction or None),
    )
    made.tools_dict = {name: Named(name) for name in tools}
    return made


def many(count: int) -> tuple[str, ...]:
    return tuple(f"tool{number}" for number in range(count))


DIFFERENCES = {
    "instruction": (
        request("a", instruction="be good"),
        "a system instruction of 7 characters",
        "a system instruction of 7 characters",
    ),
    "no instruction": (
        request("a", instruction=""),
        "a system instruction of 7 characters",
        "no system instruction",
    ),
    "tool added": (request("a", tools=("look", "pay")), "1 tools", "2 tools, new: pay"),
    "tool gone": (request("a", tools=()), "1 tools, 1 of which are gone", "0 tools"),
    "tool renamed": (
        request("a", tools=("see",)),
        "1 tools, 1 of which are gone",
        "1 tools, new: see",
    ),
    "many tools": (request("a", tools=many(17)), "1 tools (", "17 tools ("),
    "newest content": (request("b"), "another content 1 of 1", "content 1 of 1, of role user"),
    "one content more": (request("a", "b"), "1 contents", "2 contents"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_between_two_requests_is_named(name: str) -> None:
    asked, then, now = DIFFERENCES[name]
    found = prompts.difference(prompts.digest(request("a")), asked)
    assert found is not None
    assert found[0].startswith(then)
    assert found[1].startswith(now)


def test_a_digest_is_small_whatever_the_request() -> None:
    large = request(*("x" * 1000 for _ in range(500)), instruction="y" * 100_000, tools=many(16))
    assert len(prompts.digest(large)) <= 100
    assert len(prompts.digest(request("a", tools=many(500)))) <= 60


def test_several_differences_are_all_named_and_none_for_equal_ones() -> None:
    asked = request("a", "b", instruction="be good", tools=("pay",))
    found = prompts.difference(prompts.digest(request("a")), asked)
    assert found is not None and found[0].count(" and ") == 2
    assert prompts.digest(request("a")) == prompts.digest(request("a"))


def test_a_digest_of_another_form_says_nothing_about_a_request() -> None:
    assert prompts.difference("i1a2b3c t4d5e6f c2:a1b2c3", request("a")) is None
