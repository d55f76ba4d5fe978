"""Row D4 of the case list: every field of ADK's responses, events and actions, set to something
unusual, comes back equal. The values are made from ADK's declarations."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import BaseModel

from durable_adk.adk import events as stored
from durable_adk.adk import plain
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.model import codec
from tests.adapter.stock import Stock, user
from tests.faults.catalogue import agent
from tests.support.lives import Ledger
from tests.support.unusual import TEXT, fields_of, values_for

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


class NewerResponse(LlmResponse):
    """What a newer ADK, or a model class of its own, might add."""

    score: float = 0.0


class NewerEvent(Event):
    score: float = 0.0


def through_a_record(data: dict[str, Any]) -> dict[str, Any]:
    return dict(codec.decode(codec.encode(data)))


def same(back: BaseModel, given: BaseModel) -> None:
    assert back == given
    assert type(back) is type(given)
    assert repr(back) == repr(given)  # equal values of other types: 1 and 1.0, a tuple and a list


def with_field(cls: Any, name: str, value: Any) -> Any:
    given = cls.model_construct(**{**cls().__dict__, name: value})
    return given if cls is EventActions else given.model_copy(deep=True)


@pytest.mark.parametrize(("name", "value"), fields_of(LlmResponse))
def test_a_response_comes_back_equal(name: str, value: Any) -> None:
    response = with_field(LlmResponse, name, value)
    data = through_a_record(plain.to_plain(response, "response"))
    same(plain.from_plain(LlmResponse, data), response)


@pytest.mark.parametrize(("name", "value"), fields_of(Event))
def test_an_event_comes_back_equal(name: str, value: Any) -> None:
    event = with_field(Event, name, value)
    same(stored.from_data(through_a_record(stored.to_data(event))), event)
    same(stored.from_data(through_a_record(stored.check_storable(event, "event"))), event)


@pytest.mark.parametrize(("name", "value"), fields_of(EventActions))
def test_an_event_with_actions_comes_back_equal(name: str, value: Any) -> None:
    event = Event(author="a", actions=with_field(EventActions, name, value))
    same(stored.from_data(through_a_record(stored.to_data(event))), event)


@pytest.mark.parametrize(("name", "value"), fields_of(LlmResponse))
def test_an_event_that_refers_to_its_response_comes_back_equal(name: str, value: Any) -> None:
    """A response of a record, and the event that ADK makes of it."""
    response = with_field(LlmResponse, name, value)
    if response.content is None:
        response.content = says("x" * 100).content
    kept = plain.to_plain(response, "response")
    references = stored.References()
    if "content" in kept:
        references.know_response(kept, "slot", 0)
    event = Event(author="a", **{k: v for k, v in response.__dict__.items() if v is not None})
    body = codec.encode({"responses": [kept]})
    data = through_a_record(references.shorten(stored.to_data(event)))
    assert ("r" in data) == ("slot" in references.used)
    same(stored.from_data(stored.lengthen(data, {"slot": body})), event)


@pytest.mark.parametrize("value", list(values_for(types.Content)))
def test_a_message_comes_back_equal(value: types.Content) -> None:
    data = through_a_record(stored.content_to_data(value))
    same(stored.content_from_data(data), value)


@pytest.mark.parametrize(
    "given", [NewerResponse(score=0.5, model_version=TEXT), NewerEvent(author="a", score=0.5)]
)
def test_a_class_with_a_field_more_comes_back_as_it_was(given: Any) -> None:
    if isinstance(given, Event):
        back: Any = stored.from_data(through_a_record(stored.to_data(given)))
    else:
        back = plain.from_plain(LlmResponse, through_a_record(plain.to_plain(given, "response")))
    same(back, given)


def test_a_class_that_cannot_be_found_again_comes_back_as_adks() -> None:
    class Local(LlmResponse):
        score: float = 0.0

    data = through_a_record(plain.to_plain(Local(score=0.5, model_version="v"), "response"))
    assert data["score"] == 0.5  # it stays in the record
    same(plain.from_plain(LlmResponse, data), LlmResponse(model_version="v"))


@pytest.mark.parametrize("cls", [LlmResponse, Event])
def test_fields_that_only_a_newer_adk_knows_stay_in_the_record(cls: Any) -> None:
    """Read by an older one after a rollback: left out, nested ones too, and not an error."""
    content = {"role": "model", "parts": [{"text": "a", "glow": {"x": 1}}], "mood": "good"}
    data = {"content": content, "brand_new": [1], "model_version": "v"}
    before = codec.encode(data)
    back = plain.from_plain(cls, data)
    assert (back.content.parts[0].text, back.model_version) == ("a", "v")
    assert codec.encode(data) == before


# ---------------------------------------------------------------- in runs


def look_of(event: Event) -> Any:
    """The event without times and without ids that are drawn."""
    shown = event.model_copy(update={"id": "", "timestamp": 0.0, "invocation_id": ""}, deep=True)
    for one in (*shown.get_function_calls(), *shown.get_function_responses()):
        one.id = "(drawn)" if (one.id or "").startswith("adk-") else one.id
    return shown


@pytest.mark.parametrize(("name", "value"), fields_of(LlmResponse))
async def test_a_response_makes_the_session_that_it_makes_in_plain_adk(
    name: str, value: Any, make_app: Any
) -> None:
    content = {} if name == "content" else {"content": says("hello").content}
    response = LlmResponse.model_construct(**{**LlmResponse().__dict__, **content, name: value})

    def root() -> LlmAgent:
        left = [response.model_copy(deep=True)]
        model = ScriptedModel(model="root", script=lambda *_: left.pop() if left else says("done"))
        return LlmAgent(name="root", model=model)

    stock = Stock(root())
    await stock.run(user("go"))
    plain = [look_of(event) for event in (await stock.session()).events]
    out = await make_app(root()).invoke(user_id="u", session_id="s", message="go")
    assert out.status == "completed", out.error
    assert [look_of(event) for event in out.events] == plain


BY_TOOL = {
    "requested_auth_configs": None,  # a credential wait: refused
    "requested_tool_confirmations": None,  # a confirmation that the tool asks for: its own tests
    "transfer_to_agent": "other",
}
"""Fields of actions that a tool cannot set to just anything."""


def set_by_tool() -> list[Any]:
    return [
        pytest.param(name, BY_TOOL.get(name, value), id=case.id)
        for case in fields_of(EventActions)
        for name, value in [case.values]
        if BY_TOOL.get(name, value) is not None
    ]


@pytest.mark.parametrize(("name", "value"), set_by_tool())
async def test_what_a_tool_sets_on_its_actions_is_set_again_on_a_later_attempt(
    name: str, value: Any, make_app: Any, ledger: Ledger
) -> None:
    """Both attempts end in the callback after the tool; the second replays the tool."""
    seen: list[EventActions] = []

    def act(tool_context: Any) -> str:
        """Act."""
        ledger.add("act")
        setattr(tool_context.actions, name, copy.deepcopy(value))
        return "acted"

    def look(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        seen.append(tool_context.actions.model_copy(deep=True))
        raise ConnectionError("cut off")

    other = agent(ledger, "other", says("other done"), description="other")
    root = agent(ledger, "root", calls(("act", {})), says("done"), tools=[act], sub_agents=[other])
    root.after_tool_callback = look
    app = make_app(root)
    for _ in range(2):
        await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    assert ledger.rows().count(("act",)) == 1
    first, second = seen
    assert getattr(first, name) == value
    same(second, first)
