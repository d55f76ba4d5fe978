"""What cannot be durable is refused: node path, reason, alternative; no model is called for it."""

from __future__ import annotations

import asyncio
import sys
import types as python_types
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.openapi.models import APIKey, APIKeyIn, OAuth2, OAuthFlows
from fastapi.openapi.models import OAuthFlowAuthorizationCode as ByCode
from fastapi.openapi.models import OAuthFlowClientCredentials as ByClient
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.base_authenticated_tool import BaseAuthenticatedTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset, StdioConnectionParams
from google.adk.tools.openapi_tool.openapi_spec_parser.openapi_toolset import OpenAPIToolset
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, FunctionNode, Workflow, node
from mcp import StdioServerParameters

from durable_adk import App, UnsupportedNode
from durable_adk.adk.adapter import Adapter
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.errors import ConfigError
from durable_adk.model.activity import UnknownOutcome
from durable_adk.testing import memory_client
from tests.adapter.stock import agent, confirmed

CONFIG = {"features": {"durable_workflow": True}}
MOVE = calls(("transfer_to_agent", {"agent_name": "sub"}))


def flow(*parts: Any, name: str = "flow") -> Workflow:
    return Workflow(name=name, edges=[(START, part) for part in parts])


def with_tools(*tools: Any) -> LlmAgent:
    return agent("root", says("hi"), tools=list(tools))


# ------------------------------------------------------------------------ agents elsewhere


def elsewhere(name: str, module: str = "google.adk.agents.elsewhere") -> BaseAgent:
    """An agent of ADK's class of that name; those classes need packages that may be missing."""
    made = python_types.ModuleType(module)
    fields = {"__module__": module, "__doc__": "Somewhere else."}
    cls: Any = type(BaseAgent)(name, (BaseAgent,), fields)
    setattr(made, name, cls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module, made)
        return cls(name="far", description="far")  # type: ignore[no-any-return]


class OwnRemote(BaseAgent):
    """Runs here, whatever it is called."""


OwnRemote.__name__ = "RemoteA2aAgent"


# ------------------------------------------------------------------------ transfers


def moving(name: str = "mover", **fields: Any) -> LlmAgent:
    """An agent that hands over to a sub-agent."""
    sub = agent("sub", says("hello"), description="sub")
    return agent(name, MOVE, says("end"), description=name, sub_agents=[sub], **fields)


def in_a_graph(root: LlmAgent) -> Workflow:
    """ADK runs an agent without a mode for a single turn there."""
    return flow(flow(root, name="inner"))


# ------------------------------------------------------------------------ credentials

CODE = ByCode(authorizationUrl="https://a.test/auth", tokenUrl="https://a.test/token", scopes={})
ASKS = AuthConfig(
    credential_key="asks",
    auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=CODE)),
    raw_auth_credential=AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2,
        oauth2=OAuth2Auth(client_id="id", client_secret="planted secret", redirect_uri="https://b"),
    ),
)
KEY = AuthConfig(
    credential_key="key",
    auth_scheme=APIKey(**{"in": APIKeyIn.header, "name": "key"}),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="k"),
)
ITSELF = AuthConfig(
    credential_key="itself",
    auth_scheme=OAuth2(flows=OAuthFlows(clientCredentials=ByClient(tokenUrl="https://a.test/t"))),
    raw_auth_credential=ASKS.raw_auth_credential,
)
SPEC = {"openapi": "3.0.0", "info": {"title": "t", "version": "1"}, "paths": {}}


def fetch(q: str) -> str:
    """Fetch."""
    return q


class Fetching(BaseAuthenticatedTool):
    async def _run_async_impl(self, *, args: Any, tool_context: Any, credential: Any) -> Any:
        return "fetched"


def fetching(auth: AuthConfig | None) -> Fetching:
    return Fetching(name="fetching", description="Fetch.", auth_config=auth)


def mcp(auth: AuthConfig | None) -> McpToolset:
    server = StdioConnectionParams(server_params=StdioServerParameters(command="none"))
    return McpToolset(connection_params=server, **_named(auth))


def openapi(auth: AuthConfig | None) -> OpenAPIToolset:
    return OpenAPIToolset(spec_dict=SPEC, **_named(auth))


def _named(auth: AuthConfig | None) -> dict[str, Any]:
    if auth is None:
        return {}
    return {
        "auth_scheme": auth.auth_scheme,
        "auth_credential": auth.raw_auth_credential,
        "credential_key": auth.credential_key,
    }


def asking_node() -> FunctionNode:
    async def body(node_input: Any) -> str:
        return "fetched"

    return FunctionNode(func=body, name="asking", auth_config=ASKS, rerun_on_resume=True)


Build = Callable[[], Any]


def asking_below_a_task() -> LlmAgent:
    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    tools = [FunctionTool(pay, require_confirmation=True)]
    inner = agent("inner", says("hi"), description="inner", mode="single_turn", tools=tools)
    return agent("task", says("hi"), description="task", mode="task", sub_agents=[inner])


REFUSED: dict[str, tuple[Build, str, str]] = {
    "a remote agent as root": (lambda: elsewhere("RemoteA2aAgent"), "far", "remote agent"),
    "a remote agent below": (
        lambda: agent("root", says("hi"), sub_agents=[elsewhere("RemoteA2aAgent")]),
        "root/far",
        "remote agent",
    ),
    "a managed agent": (lambda: flow(elsewhere("ManagedAgent")), "flow/far", "managed agent"),
    "a LangGraph agent": (
        lambda: with_tools(AgentTool(elsewhere("LangGraphAgent"))),
        "root/far",
        "LangGraph agent",
    ),
    "a node that transfers": (lambda: in_a_graph(moving()), "flow/inner/mover", "twice"),
    "an agent that asks below a task": (
        lambda: agent("root", says("hi"), sub_agents=[asking_below_a_task()]),
        "root/task/inner",
        "start over for ever",
    ),
    "a single-turn sub-agent that transfers": (
        lambda: agent("root", says("hi"), sub_agents=[moving(mode="single_turn")]),
        "root/mover",
        "twice",
    ),
    "one of these in an agent tool": (
        lambda: with_tools(
            AgentTool(agent("mid", says("hi"), sub_agents=[moving(mode="single_turn")]))
        ),
        "root/mid/mover",
        "twice",
    ),
    "one of these in a workflow tool": (
        lambda: with_tools(flow(moving())),
        "root/flow/mover",
        "twice",
    ),
    "an agent tool that asks and transfers": (
        lambda: with_tools(AgentTool(moving(tools=[confirmed(fetch)]))),
        "root/mover",
        "twice",
    ),
    "a root for a single turn": (
        lambda: agent("root", says("hi"), mode="single_turn"),
        "root",
        "single_turn",
    ),
    "a node that asks for a credential": (
        lambda: flow(asking_node()),
        "flow/asking",
        "it asks for a credential",
    ),
    "a tool that asks for a credential": (
        lambda: with_tools(fetching(ASKS)),
        "root",
        "tool fetching asks for a credential",
    ),
    "a function that asks for a credential": (
        lambda: flow(with_tools(AuthenticatedFunctionTool(func=fetch, auth_config=ASKS))),
        "flow/root",
        "tool fetch asks for a credential",
    ),
    "a tool node that asks for a credential": (
        lambda: flow(node(fetching(ASKS))),
        "flow/fetching",
        "it asks for a credential",
    ),
    "an MCP toolset that asks for a credential": (
        lambda: with_tools(mcp(ASKS)),
        "root",
        "tool McpToolset asks for a credential",
    ),
    "an OpenAPI toolset that asks for a credential": (
        lambda: with_tools(openapi(ASKS)),
        "root",
        "tool OpenAPIToolset asks for a credential",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_with_path_reason_and_alternative_and_nothing_is_stored(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ask(self: ScriptedModel, *_: Any, **__: Any) -> Any:
        asked.append(self.model)
        yield says("hello")

    monkeypatch.setattr(ScriptedModel, "generate_content_async", ask)
    build, path, reason = REFUSED[name]
    client = memory_client()
    with pytest.raises(UnsupportedNode) as refused:
        await App("refusing", root_agent=build(), config=CONFIG, mongodb=client).invoke(
            user_id="u", message="go"
        )
    error = refused.value
    assert (error.node_path, reason in error.because) == (path, True), error
    assert error.instead and error.instead in str(error)
    assert asked == []
    assert await client.list_database_names() == []


TAKEN: dict[str, Build] = {
    "an agent of one's own by that name": lambda: OwnRemote(name="own"),
    "a chat node that transfers": lambda: in_a_graph(moving(mode="chat")),
    "a node with a task": lambda: flow(
        agent("root", says("hi"), sub_agents=[agent("sub", description="sub", mode="task")])
    ),
    "an agent tool that transfers": lambda: with_tools(AgentTool(moving())),
    "a tool without a credential": lambda: with_tools(fetching(None)),
    "a function without a credential": lambda: with_tools(AuthenticatedFunctionTool(func=fetch)),
    "a tool node without a credential": lambda: flow(node(FunctionTool(fetch))),
    **{
        f"{kind}, {how}": lambda make=make, auth=auth: with_tools(make(auth))
        for kind, make in (("MCP", mcp), ("OpenAPI", openapi), ("a tool", fetching))
        for how, auth in (("open", None), ("by key", KEY), ("by its own account", ITSELF))
    },
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_looks_like_it_is_taken(name: str) -> None:
    Adapter(TAKEN[name](), app_name="a").check()


# ------------------------------------------------------------------------ as it runs


async def documents(client: Any) -> str:
    """All that is stored, as text."""
    found = []
    for database in await client.list_database_names():
        for collection in await client[database].list_collection_names():
            found += [repr(one) async for one in client[database][collection].find({})]
    return "\n".join(found)


async def failed(root: Any, client: Any, *kinds: str) -> tuple[str, str]:
    """Run a root to its refusal: the message and the remedy; nothing but these has an outcome."""
    async with App("late", root_agent=root, config=CONFIG, mongodb=client) as app:
        out = await app.invoke(user_id="u", message="go")
        assert out.status == "failed" and out.error is not None
        assert (out.error.type, out.waits) == ("UnsupportedNode", ())
        activities = await app.executions.activities(out.execution_id)
    assert tuple(one.kind for one in activities if one.status == "completed") == kinds
    assert out.error.message is not None and out.error.remedy is not None
    return out.error.message, out.error.remedy


@pytest.mark.parametrize("is_caught", [False, True])
async def test_one_that_transfers_and_is_made_at_run_time_is_refused_before_its_model_is_called(
    is_caught: bool,
) -> None:
    asked: list[int] = []
    made = moving(mode="single_turn")
    model: Any = made.model
    model.on_call = asked.append

    async def runner(ctx: Any, node_input: Any) -> Any:
        try:
            return await ctx.run_node(made, node_input="x")
        except UnsupportedNode:
            if not is_caught:
                raise
            return "went on"

    root = flow(FunctionNode(func=runner, name="runner", rerun_on_resume=True))
    message, remedy = await failed(root, memory_client())
    assert message.startswith("flow@1/runner@1/mover: ") and "twice" in message
    assert "mode='chat'" in remedy
    assert asked == []


async def test_a_refusal_below_a_tool_is_no_error_text_for_the_model() -> None:
    asked: list[int] = []

    async def work(order: str, tool_context: ToolContext) -> Any:
        """Work an order off."""
        return await tool_context.run_node(moving(mode="single_turn"), node_input=order)

    root = agent("root", calls(("work", {"order": "pens"})), says("done"), tools=[work])
    model: Any = root.model
    model.on_call = asked.append
    message, _remedy = await failed(root, memory_client(), "model")
    assert message.startswith("root@1/mover: ") and "twice" in message
    assert asked == [0]


async def test_two_runs_at_one_place_are_refused_before_the_second_runs() -> None:
    entered: list[str] = []

    def note(callback_context: Any, llm_request: Any) -> None:
        entered.append("model")

    async def work(order: str, tool_context: ToolContext) -> Any:
        """Work an order off."""
        payer = agent("payer", says("paid"), before_model_callback=note)
        payer.model.delay = 0.05
        return await tool_context.run_node(payer, node_input=order)

    asked = calls(("work", {"order": "a"}), ("work", {"order": "b"}))
    root = agent("root", asked, says("done"), tools=[work])
    message, remedy = await failed(root, memory_client(), "model")
    assert message.startswith("root@1/payer@") and "active at once" in message
    assert "run_id=tool_context.function_call_id, use_sub_branch=True" in remedy
    assert len(entered) <= 1


async def test_two_runs_are_taken_as_the_refusal_says_and_each_gets_its_own_answer() -> None:
    paid: list[int] = []

    async def pay(cents: int) -> str:
        """Pay."""
        await asyncio.sleep(0.05)
        paid.append(cents)
        return "paid"

    async def work(order: str, tool_context: ToolContext) -> Any:
        """Work an order off."""
        script = [calls(("pay", {"cents": len(order)})), says("paid")]
        payer = agent("payer", *script, tools=[confirmed(pay)])
        named = {"run_id": tool_context.function_call_id, "use_sub_branch": True}
        return await tool_context.run_node(payer, node_input=order, **named)

    asked = calls(("work", {"order": "a"}), ("work", {"order": "bb"}))
    root = agent("root", asked, says("done"), tools=[work])
    async with App("late", root_agent=root, config=CONFIG, mongodb=memory_client()) as app:
        out = await app.invoke(user_id="u", message="go")
        assert out.status == "suspended"
        answers = {w.id: {"confirmed": w.tool_call.args == {"cents": 2}} for w in out.waits}
        assert len(answers) == 2
        out = await app.resume(out.execution_id, answers)
    assert (out.status, out.response, paid) == ("completed", "done", [2])


@pytest.mark.parametrize("is_looked_at", [False, True])
async def test_a_credential_that_a_tool_asks_for_as_it_runs_is_refused_and_not_stored(
    is_looked_at: bool,
) -> None:
    """Also where an outcome is written at once, because a hook looks at it."""

    def ask(q: str, tool_context: ToolContext) -> str:
        """Ask."""
        tool_context.request_credential(ASKS)
        return "pending"

    def look(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        return None

    script = [calls(("ask", {"q": "x"})), says("done")]
    hook = look if is_looked_at else None
    root = agent("root", *script, tools=[ask], after_tool_callback=hook)
    client = memory_client()
    message, remedy = await failed(root, client, "model")
    assert message.startswith("root@1: its tool ask asks for a credential")
    assert "of its own" in remedy
    stored = await documents(client)
    assert "planted secret" not in stored and "a.test" not in stored


# ------------------------------------------------------------------------ what is no node


async def test_live_runs_are_refused() -> None:
    root = agent("root", says("hi"))
    client = memory_client()
    async with App("live", root_agent=root, config=CONFIG, mongodb=client) as app:
        with pytest.raises(ConfigError, match="run_live"):
            app.runner.run_live(live_request_queue=None)
        assert (await app.executions.list()).items == ()


def test_what_is_no_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected an agent"):
        Adapter("refunds", app_name="a").check()


def test_a_policy_for_a_tool_that_does_not_exist_is_an_error() -> None:
    policies = {"no_such_tool": UnknownOutcome.FAIL}
    with pytest.raises(ConfigError, match="no_such_tool"):
        Adapter(agent("root"), app_name="a", tool_policies=policies).check()
