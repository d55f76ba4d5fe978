"""Rows D of the case list: what goes in comes out, with its type; the rest is refused by path."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import threading
import uuid
from typing import Any

import pydantic
import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, Workflow
from google.genai import types

from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.errors import NotStorable
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent


class Color(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: tuple[int, ...]


class Order(pydantic.BaseModel):
    number: int
    price: decimal.Decimal


PIXELS = b"\x89PNG\xff\x00\xfe"
VALUES = [
    b"\xff\xfe\x00bytes",
    dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC),
    dt.date(2026, 2, 28),
    dt.timedelta(days=-1, microseconds=7),
    decimal.Decimal("0.10"),
    uuid.UUID(int=7),
    {1, 2, 3},
    frozenset({"a"}),
    (1, ("nested",)),
    {1: "int key", (1, 2): "tuple key"},
    2**80,
    Color.RED,
    Word.YES,
    Point(1, (2, 3)),
    Order(number=1, price=decimal.Decimal("9.90")),
    "nul \x00 and surrogate \udc80",
    {"$t": "looks like a tag"},
    1.5e300,
    None,
]


def names(value: Any) -> str:
    return f"{type(value).__name__}-{str(value)[:12]!r}".encode("ascii", "replace").decode()


async def test_an_image_in_the_message_arrives_byte_by_byte(make_app, ledger) -> None:
    """D1: in the first attempt and in a later one."""
    tools = Tools(ledger)
    seen: list[bytes] = []

    def script(request: Any, turn: int) -> Any:
        parts = [part for content in request.contents for part in content.parts or ()]
        seen.extend(part.inline_data.data for part in parts if part.inline_data)
        return [calls(("pay", {"amount": 1})), says("seen")][turn]

    root = agent(ledger, "root", tools=[tools.confirmed_pay])
    root.model.script = script
    image = types.Part(inline_data=types.Blob(mime_type="image/png", data=PIXELS))
    message = types.Content(role="user", parts=[types.Part(text="look"), image])
    out = await make_app(root).invoke(user_id="u", message=message)
    out = await make_app(root).resume(out.execution_id, approve(out))
    assert out.status == "completed"
    assert seen == [PIXELS, PIXELS]
    first = out.events[0].content.parts[1].inline_data
    assert (first.mime_type, first.data) == ("image/png", PIXELS)


@pytest.mark.parametrize("value", VALUES, ids=names)
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_values_keep_their_type_in_state_results_and_outputs(
    make_app, ledger, value, mode
) -> None:
    """D2: what a later attempt sees is what the first one saw."""
    tools = Tools(ledger)
    results: list[Any] = []
    prompts: list[Any] = []
    states: list[Any] = []

    def give(q: str) -> Any:
        """Give the value."""
        return {"value": value}

    def note(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        if tool.name == "give":
            results.append(tool_response["value"])

    def prompt(callback_context: Any, llm_request: Any) -> None:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        for part in parts:
            if part.function_response and part.function_response.name == "give":
                prompts.append(part.function_response.response["value"])

    def keeps(node_input: Any, ctx: Any) -> Any:
        ctx.state["kept"] = value
        return "kept"

    def reads(node_input: Any, ctx: Any) -> str:
        states.append(ctx.state["kept"])
        return "read"

    payer = agent(
        ledger,
        "payer",
        calls(("give", {"q": "x"})),
        calls(("pay", {"amount": 1})),
        says("done"),
        tools=[give, tools.confirmed_pay],
        after_tool_callback=note,
        before_model_callback=prompt,
    )
    flow = Workflow(name="flow", edges=[(START, keeps), (keeps, payer), (payer, reads)])
    out = await make_app(flow).invoke(user_id="u", session_id="s", message="go")
    assert out.status == "suspended", out.error
    app = make_app(flow, mode=mode)
    out = await app.resume(out.execution_id, approve(out))
    assert out.status == "completed", out.error
    assert len(results) == (2 if mode == "walk" else 1)
    assert len(prompts) >= 2, "the model sees it before the wait and after"
    for seen in (results, prompts):
        assert [one for one in seen if one != value] == []
        assert {type(one) for one in seen} == {type(value)}
    assert states == [value]
    assert type(states[0]) is type(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (math.nan, "give result"),
        ({"deep": [1, math.inf]}, "deep"),
        (lambda: None, "give result"),
        (object(), "give result"),
    ],
    ids=["nan", "inf deep inside", "function", "object"],
)
async def test_a_result_that_cannot_be_stored_fails_the_execution_with_its_path(
    make_app, ledger, value, where
) -> None:
    """D2 and R6: at once, not after five attempts."""

    def give(q: str) -> Any:
        """Give the value."""
        ledger.add("give")
        return {"value": value} if where == "give result" else value

    script = [calls(("give", {"q": "x"})), says("done")]
    app = make_app(agent(ledger, "root", *script, tools=[give]))
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("failed", "NotStorable")
    assert where in out.error.message
    assert ledger.rows().count(("give",)) == 1


@pytest.mark.parametrize("asks", [False, True])
async def test_so_does_an_argument_that_a_callback_puts_in(make_app, ledger, asks) -> None:
    def pay(cents: int, lock: Any = None) -> str:
        """Pay."""
        ledger.add("pay")
        return "paid"

    def put_in(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
        ledger.add("callback")
        args["lock"] = threading.Lock()

    root = LlmAgent(
        name="desk",
        model=ScriptedModel(script=[calls(("pay", {"cents": 5})), says("done")]),
        tools=[FunctionTool(pay, require_confirmation=asks)],
        before_tool_callback=put_in,
    )
    out = await make_app(root).invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("failed", "NotStorable")
    assert "pay arguments" in out.error.message and "lock" in out.error.message
    assert ledger.rows() == [("callback",)]


async def test_so_does_what_a_function_node_puts_into_the_state(make_app, ledger) -> None:
    def keep(ctx: Any, node_input: Any) -> str:
        ledger.add("keep")
        ctx.state["temp:lock"] = threading.Lock()
        return "kept"

    out = await make_app(Workflow(name="flow", edges=[(START, keep)])).invoke(
        user_id="u", message="go"
    )
    assert (out.status, out.error.type) == ("failed", "NotStorable")
    assert out.error.message.startswith('flow@1/keep@1.state["temp:lock"]')
    assert ledger.rows() == [("keep",)]


async def test_a_state_delta_that_cannot_be_stored_is_refused_before_anything(
    make_app, ledger
) -> None:
    app = make_app(agent(ledger, "root", says("hello")))
    with pytest.raises(NotStorable) as refused:
        await app.invoke(user_id="u", session_id="s", message="go", state_delta={"x": object()})
    assert "x" in refused.value.path
    assert (await app.executions.list()).items == ()
    assert ledger.rows() == []


async def test_bytes_in_the_state_survive_turns(make_app, ledger) -> None:
    """D1: not UTF-8."""
    root = agent(ledger, "root", says("hello"))
    await make_app(root).invoke(
        user_id="u", session_id="s", message="one", state_delta={"raw": PIXELS}
    )
    app = make_app(root)
    await app.invoke(user_id="u", session_id="s", message="two")
    session = await app.sessions.get(user_id="u", session_id="s")
    assert session.state["raw"] == PIXELS
