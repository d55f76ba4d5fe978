"""Calls whose arguments hold the id of their session, in a fork made inside their turn."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import step
from durable_adk.testing import ScriptedModel, calls, memory_client, says
from tests.sessions.test_forks import ON, Place


def flow(ledger: list[Any]) -> Workflow:
    """A tool, a node and two steps, all told the id of the session."""

    def look(where: str) -> str:
        """Look."""
        ledger.append(("look", where))
        return "found"

    def into_the_session(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
        args["where"] = f"table of {tool_context.session.id}"

    def inner(node_input: Any) -> str:
        ledger.append(("inner", node_input))
        return "inner"

    def note(what: str, session_id: str) -> str:
        ledger.append((what, session_id))
        return what

    part = FunctionNode(func=inner, name="inner")

    async def visit(ctx: Any, node_input: Any) -> Any:
        session_id = ctx.session.id
        await step("before", note, "before", session_id)
        if not ctx.resume_inputs:
            await ctx.run_node(part, node_input=session_id)
            yield RequestInput(interrupt_id="q1", message="and?")
            return
        await step("after", note, "after", session_id)
        yield ctx.resume_inputs["q1"]

    script = [calls(("look", {"where": ""})), says("looked")]
    looker = LlmAgent(
        name="looker",
        model=ScriptedModel(script=script),
        tools=[look],
        before_tool_callback=into_the_session,
    )
    asker = FunctionNode(func=visit, name="visit", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, looker), (looker, asker)])


async def forked(mode: str, source: str) -> tuple[Any, list[Any], str]:
    """What became of a fork that was cut at the question, and its id."""
    place = Place(memory_client(), "own_ids")
    place.app = place.make(flow(place.ledger), config={**ON, "replay": {"mode": mode}})
    try:
        asked = await place.say(source, "go")
        assert asked.status == "suspended", asked.error
        before = list(place.ledger)
        fork = await place.app.sessions.fork("u", source, before=asked.waits[0].id)
        found = await place.answer(await place.outcome(fork), "blue")
        return found, place.ledger[len(before) :], fork.session_id
    finally:
        for app in place.apps:
            await app.close()


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("source", ["s", "conversation-7f3a-0001"])
async def test_what_is_recorded_is_found_by_the_sources_id_and_what_is_new_has_its_own(
    mode: str, source: str
) -> None:
    out, since, session_id = await forked(mode, source)
    assert (out.status, out.output) == ("completed", "blue"), out.error
    assert since == [("after", session_id)]
