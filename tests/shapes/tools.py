"""Shapes of tools: every kind of body that a model can call, and everything that it can leave."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import http.server
import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig, ToolThreadPoolConfig
from google.adk.artifacts import FileArtifactService
from google.adk.events import Event, RequestInput
from google.adk.memory import InMemoryMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.tools import exit_loop, get_user_choice, load_artifacts, load_memory
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.google_search_tool import google_search
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.adk.tools.openapi_tool import OpenAPIToolset
from google.adk.tools.preload_memory_tool import preload_memory_tool
from google.adk.tools.url_context_tool import url_context
from google.adk.workflow import START, Workflow
from google.genai import types
from mcp import StdioServerParameters
from pydantic import BaseModel

from durable_adk import current_activity_id
from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import agent
from tests.shapes.shape import Shape
from tests.support.lives import Ledger

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


async def a_moment() -> None:
    await asyncio.sleep(random.random() * 0.01)


# ---------------------------------------------------------------- functions and classes


class Weigh(BaseTool):
    """A tool that is no function."""

    def __init__(self, ledger: Ledger, name: str = "weigh", *, asks: bool = False) -> None:
        super().__init__(name=name, description="Weigh a thing")
        self._ledger = ledger
        self._asks = asks

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema={
                "type": "object",
                "properties": {"thing": {"type": "string"}},
            },
        )

    async def check_require_confirmation(self, args: Any, tool_context: Any) -> bool:
        return self._asks

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        self._ledger.add("tool", self.name, args["thing"])
        await a_moment()
        return {"weight": len(args["thing"])}


class Callable:
    """An object that can be called."""

    __name__ = "called"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, q: str) -> str:
        """Be called."""
        self._ledger.add("tool", "called", q)
        await a_moment()
        return q


def kinds(ledger: Ledger) -> LlmAgent:
    def plain(q: str) -> str:
        """Plain."""
        ledger.add("tool", "plain", q)
        return q

    async def later(q: str) -> str:
        """Not at once."""
        ledger.add("tool", "later", q)
        await a_moment()
        return q

    names = ("plain", "later", "wrapped", "called")

    def wrapped(q: str) -> str:
        """Wrapped."""
        ledger.add("tool", "wrapped", q)
        return q

    return agent(
        ledger,
        "root",
        calls(*((name, {"q": name}) for name in names)),
        calls(("weigh", {"thing": "stone"}), ("plain", {"q": "again"})),
        calls(("later", {"q": "last"})),
        says("done"),
        tools=[plain, later, FunctionTool(wrapped), Callable(ledger), Weigh(ledger)],
    )


class Tag(BaseModel):
    text: str


def generators(ledger: Ledger) -> LlmAgent:
    """They show events as they go, and have one result."""

    def stream(upto: int) -> Any:
        return ("streams", {"upto": upto, "tag": {"text": "x"}})

    def counts(upto: int) -> Any:
        """Count."""
        for n in range(upto):
            ledger.add("tool", "counts", upto, n)
            yield Event(message=f"counted {n}")
        yield {"counted": upto}

    async def streams(upto: int, tag: Tag, tool_context: Any) -> Any:
        """Count, slowly."""
        for n in range(upto):
            ledger.add("tool", "streams", upto, n)
            await a_moment()
            yield Event(message=f"streamed {n}")
        tool_context.state[f"streamed {upto}"] = Tag(text="all")
        yield {"streamed": upto, "with": tag.text}

    return agent(
        ledger,
        "root",
        calls(("counts", {"upto": 2}), stream(3), stream(2)),
        calls(stream(1)),
        says("done"),
        tools=[counts, streams],
    )


def asking_tools(ledger: Ledger) -> list[Any]:
    """A generator that asks in its middle, and a tool that takes longer than that."""

    async def asks(q: str, tool_context: Any) -> Any:
        """Ask."""
        if f"ask-{q}" not in tool_context.resume_inputs:
            ledger.add("tool", "asks", q, "asked")
            yield RequestInput(interrupt_id=f"ask-{q}", message=f"what about {q}?")
            return
        ledger.add("tool", "asks", q, tool_context.resume_inputs[f"ask-{q}"])
        yield {"heard": tool_context.resume_inputs[f"ask-{q}"]}

    async def slow(q: str) -> str:
        """Take a while."""
        ledger.add("tool", "slow", q)
        await asyncio.sleep(0.03)
        return q

    return [asks, slow]


def asking_generator(ledger: Ledger) -> LlmAgent:
    script = [calls(("asks", {"q": "a"}), ("slow", {"q": "b"})), says("done")]
    return agent(ledger, "root", *script, tools=asking_tools(ledger))


def two_asking_generators(ledger: Ledger) -> LlmAgent:
    script = [calls(*(("asks", {"q": q}) for q in "ab"), ("slow", {"q": "c"})), says("done")]
    return agent(ledger, "root", *script, tools=asking_tools(ledger))


def asking_in_branches(ledger: Ledger) -> Workflow:
    """Agents that are no nodes, in a node; a node follows."""

    def branch(name: str, *batches: Any) -> LlmAgent:
        return agent(
            ledger,
            name,
            *(calls(*batch) for batch in batches),
            says(f"{name} done"),
            tools=asking_tools(ledger),
        )

    def end(node_input: Any) -> str:
        ledger.add("node", "end")
        return "end"

    parts = [
        branch("a", [("asks", {"q": "a"})]),
        branch("b", [("slow", {"q": "b1"})], [("slow", {"q": "b2"})]),
    ]
    both = ParallelAgent(name="both", sub_agents=parts)
    return Workflow(name="flow", edges=[(START, both), (both, end)])


# ---------------------------------------------------------------- what a body returns


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Size:
    width: int
    colour: Colour


class Box(BaseModel):
    name: str
    sizes: list[int] = []


PNG = b"\x89PNG\r\n\x00\xff"


def results(ledger: Ledger) -> LlmAgent:
    made = {
        "part": types.Part.from_bytes(data=PNG, mime_type="image/png"),
        "parts": [
            types.Part.from_bytes(data=PNG, mime_type="image/png"),
            "and text",
            types.Part.from_uri(file_uri="gs://b/c.png", mime_type="image/png"),
        ],
        "mixed": {"text": "seen", "image": types.Part.from_bytes(data=PNG, mime_type="image/png")},
        "model": Box(name="box", sizes=[1, 2]),
        "size": Size(3, Colour.RED),
        "none": None,
        "empty": {},
        "text": "text",
        "number": 7,
        "list": [1, {"two": (2,)}],
    }

    def give(what: str) -> Any:
        """Give one of them."""
        ledger.add("tool", "give", what)
        return made[what]

    def look(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        ledger.add("seen", args["what"], type(tool_response).__name__)

    names = list(made)
    return agent(
        ledger,
        "root",
        calls(*(("give", {"what": name}) for name in names[:5])),
        *(calls(("give", {"what": name})) for name in names[5:]),
        says("done"),
        tools=[give],
        after_tool_callback=look,
    )


class Refused(Exception):
    """An error with a constructor of its own."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


def errors(ledger: Ledger) -> LlmAgent:
    async def fail(how: str) -> str:
        """Fail."""
        ledger.add("tool", "fail", how)
        await a_moment()
        if how == "own":
            raise Refused(3, why="no")
        if how == "validation":
            Box.model_validate({"sizes": "none"})
        if how == "group":
            raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
        return "fine"

    def on_error(tool: Any, args: Any, tool_context: Any, error: Any) -> dict[str, Any]:
        ledger.add("error", args["how"], type(error).__name__)
        return {"error": type(error).__name__, "code": getattr(error, "code", None)}

    return agent(
        ledger,
        "root",
        calls(("fail", {"how": "own"}), ("fail", {"how": "no"})),
        calls(("fail", {"how": "validation"})),
        calls(("fail", {"how": "group"})),
        calls(("nowhere", {"how": "unknown"})),
        says("done"),
        tools=[fail],
        on_tool_error_callback=on_error,
    )


# ---------------------------------------------------------------- what a body does beside


def artifacts_of(ledger: Ledger) -> FileArtifactService:
    return FileArtifactService(f"{ledger.path}.artifacts")


def actions(ledger: Ledger) -> LlmAgent:
    async def save(name: str, tool_context: Any) -> dict[str, Any]:
        """Save a file, and note it."""
        ledger.add("tool", "save", name)
        part = types.Part.from_text(text=name)
        version = await tool_context.save_artifact(filename=f"{name}.txt", artifact=part)
        await a_moment()
        tool_context.state["saved"] = [*tool_context.state.get("saved", ()), name]
        tool_context.state["user:last"] = name
        tool_context.state[f"temp:{name}"] = name
        return {"saved": version >= 0}

    def show(tool_context: Any) -> str:
        """End the turn with what this returns."""
        ledger.add("tool", "show", tool_context.state.get("temp:b"), *tool_context.state["saved"])
        tool_context.actions.skip_summarization = True
        return "shown"

    def move(tool_context: Any) -> str:
        """Hand over."""
        ledger.add("tool", "move")
        tool_context.actions.transfer_to_agent = "helper"
        return "moved"

    helper = agent(ledger, "helper", calls(("show", {})), description="helps", tools=[show])
    return agent(
        ledger,
        "root",
        calls(("save", {"name": "a"})),
        calls(("save", {"name": "b"})),
        calls(("move", {})),
        says("never said"),
        tools=[save, move],
        sub_agents=[helper],
    )


def escalating(ledger: Ledger) -> LoopAgent:
    """The second round ends the loop, by ADK's own tool."""

    async def work(q: str, tool_context: Any) -> int:
        """Work."""
        rounds = tool_context.state.get("rounds", 0) + 1
        ledger.add("tool", "work", rounds)
        await a_moment()
        tool_context.state["rounds"] = rounds
        return rounds

    def choose(request: Any, turn: int) -> Any:
        script = [
            calls(("work", {"q": "x"})),
            says("once more"),
            calls(("work", {"q": "x"})),
            calls(("exit_loop", {})),
        ]
        own = sum(1 for content in request.contents if content.role == "model")
        return script[min(own, len(script) - 1)]

    worker = agent(ledger, "worker", tools=[work, exit_loop])
    model: Any = worker.model
    model.script = choose
    return LoopAgent(name="loop", sub_agents=[worker], max_iterations=5)


def parallel_states(ledger: Ledger) -> ParallelAgent:
    """Branches and, in each, two tools at once that write different keys."""

    def branch(name: str) -> LlmAgent:
        async def put(key: str, tool_context: Any) -> str:
            """Put."""
            ledger.add("tool", "put", key)
            await a_moment()
            tool_context.state[key] = key
            return key

        return agent(
            ledger,
            name,
            calls(("put", {"key": f"{name}1"}), ("put", {"key": f"{name}2"})),
            calls(("put", {"key": f"{name}3"})),
            says(f"{name} done"),
            tools=[put],
        )

    return ParallelAgent(name="par", sub_agents=[branch("a"), branch("b")])


# ---------------------------------------------------------------- toolsets


class Desk(BaseToolset):
    """Tools made anew at each listing; one asks, one asks by itself."""

    def __init__(self, ledger: Ledger, prefix: str | None = None) -> None:
        super().__init__(tool_name_prefix=prefix)
        self._use_invocation_cache = False
        self._ledger = ledger

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        ledger = self._ledger

        async def look(q: str) -> str:
            """Look."""
            ledger.add("tool", "look", q)
            await a_moment()
            return q

        def pay(amount: int) -> str:
            """Pay."""
            ledger.add("tool", "pay", amount)
            return "paid"

        def book(days: int, tool_context: Any) -> Any:
            """Book days off."""
            answer = tool_context.tool_confirmation
            if answer is None:
                tool_context.request_confirmation(hint="how many?", payload={"days": 0})
                return {"status": "waits"}
            ledger.add("tool", "book", days, answer.payload["days"])
            return {"booked": answer.payload}

        return [
            FunctionTool(look),
            FunctionTool(pay, require_confirmation=True),
            FunctionTool(book),
            Weigh(ledger, "weigh_gold", asks=True),
        ]


def toolset(ledger: Ledger) -> LlmAgent:
    return agent(
        ledger,
        "root",
        calls(("desk_look", {"q": "a"}), ("desk_pay", {"amount": 1})),
        calls(("desk_look", {"q": "b"})),
        calls(("desk_weigh_gold", {"thing": "ring"}), ("desk_look", {"q": "c"})),
        calls(("desk_book", {"days": 9})),
        says("done"),
        tools=[Desk(ledger, "desk")],
    )


def declined(ledger: Ledger) -> LlmAgent:
    """W14: its body never runs."""
    return agent(
        ledger,
        "root",
        calls(("weigh", {"thing": "ring"}), ("look", {"q": "b"})),
        says("done"),
        tools=[Weigh(ledger, asks=True), Desk(ledger)],
    )


def over_http(ledger: Ledger) -> LlmAgent:
    """OpenAPI against a real server that keeps the ledger."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ledger.add("http", "GET", self.path)
            self._reply({"path": self.path})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            ledger.add("http", "POST", self.path, body.decode())
            self._reply({"made": json.loads(body)})

        def _reply(self, data: Any) -> None:
            text = json.dumps(data).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    spec = {
        "openapi": "3.0.0",
        "info": {"title": "pets", "version": "1"},
        "servers": [{"url": f"http://127.0.0.1:{web.server_address[1]}"}],
        "paths": {
            "/pets/{name}": {
                "get": {
                    "operationId": "getPet",
                    "summary": "Get a pet",
                    "parameters": [
                        {
                            "name": "name",
                            "in": "path",
                            "required": True,
                            "schema": {"type": "string"},
                        }
                    ],
                    "responses": {"200": {"description": "a pet"}},
                }
            },
            "/pets": {
                "post": {
                    "operationId": "makePet",
                    "summary": "Make a pet",
                    "requestBody": {
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "object",
                                    "properties": {"kind": {"type": "string"}},
                                }
                            }
                        }
                    },
                    "responses": {"200": {"description": "the pet"}},
                }
            },
        },
    }
    return agent(
        ledger,
        "root",
        calls(("get_pet", {"name": "rex"}), ("get_pet", {"name": "tom"})),
        calls(("make_pet", {"kind": "cat"})),
        says("done"),
        tools=[OpenAPIToolset(spec_dict=spec)],
    )


def mcp_toolset(ledger: Ledger, **named: Any) -> McpToolset:
    server = StdioServerParameters(
        command=sys.executable, args=[str(SERVER), str(ledger.path), f"{ledger.path}.closed"]
    )
    params = StdioConnectionParams(server_params=server, timeout=20)
    return McpToolset(connection_params=params, **named)


def over_mcp(ledger: Ledger) -> LlmAgent:
    """A server of its own in each process, on stdio; one of two toolsets is confirmed."""
    return agent(
        ledger,
        "root",
        calls(("weigh", {"thing": "a"}), ("weigh", {"thing": "bb"}), ("lose", {"thing": "key"})),
        calls(("safe_send", {"thing": "ring"})),
        calls(("weigh", {"thing": "ccc"})),
        says("done"),
        tools=[
            mcp_toolset(ledger, tool_filter=["weigh", "lose"]),
            mcp_toolset(
                ledger,
                tool_filter=["send"],
                tool_name_prefix="safe",
                require_confirmation=True,
            ),
        ],
    )


# ---------------------------------------------------------------- ADK's own tools


class Remembers(InMemoryMemoryService):
    """Finds one thing for every query."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        self._ledger.add("memory", query)
        await a_moment()
        content = types.Content(role="user", parts=[types.Part(text=f"found {query}")])
        return SearchMemoryResponse(memories=[MemoryEntry(content=content, author="u")])


def built_in(ledger: Ledger) -> LlmAgent:
    """They write into the request only."""
    made = agent(ledger, "root", says("found"), tools=[google_search, url_context])
    model: Any = made.model
    model.model = "gemini-3"
    return made


def remembering(ledger: Ledger) -> LlmAgent:
    async def save(name: str, tool_context: Any) -> bool:
        """Save a file."""
        ledger.add("tool", "save", name)
        part = types.Part.from_text(text=name)
        version: int = await tool_context.save_artifact(filename=name, artifact=part)
        return version >= 0  # a body that is cut off saves another one

    return agent(
        ledger,
        "root",
        calls(("load_memory", {"query": "keys"}), ("save", {"name": "f.txt"})),
        calls(("load_artifacts", {"artifact_names": ["f.txt"]})),
        says("done"),
        tools=[load_memory, load_artifacts, preload_memory_tool, save],
    )


def choosing(ledger: Ledger) -> LlmAgent:
    def later(q: str) -> None:
        """Answer later."""
        ledger.add("tool", "later", q)

    return agent(
        ledger,
        "root",
        calls(("get_user_choice", {"options": ["blue", "red"]})),
        calls(("later", {"q": "a"})),
        says("done"),
        tools=[get_user_choice, LongRunningFunctionTool(later)],
    )


class Verdict(BaseModel):
    ok: bool
    why: str


def typed_output(ledger: Ledger) -> LlmAgent:
    """ADK adds ``set_model_response`` to the request."""

    async def look(q: str) -> str:
        """Look."""
        ledger.add("tool", "look", q)
        await a_moment()
        return q

    return agent(
        ledger,
        "root",
        calls(("look", {"q": "a"})),
        calls(("set_model_response", {"ok": True, "why": "seen"})),
        says("never"),
        tools=[look],
        output_schema=Verdict,
        output_key="verdict",
    )


# ---------------------------------------------------------------- threads


def in_threads(ledger: Ledger) -> LlmAgent:
    """Synchronous functions run in threads, and know where they are called from."""

    def work(q: str, tool_context: Any) -> str:
        """Work."""
        in_thread = threading.current_thread() is not threading.main_thread()
        ledger.add("tool", "work", q, in_thread, bool(current_activity_id()))
        threading.Event().wait(random.random() * 0.01)
        tool_context.state[q] = q
        return q

    return agent(
        ledger,
        "root",
        calls(*(("work", {"q": letter}) for letter in "abc")),
        calls(("work", {"q": "d"})),
        says("done"),
        tools=[work],
    )


def pooled() -> RunConfig:
    return RunConfig(tool_thread_pool_config=ToolThreadPoolConfig(max_workers=2))


def answer(wait: Any) -> Any:
    if wait["kind"] != "adk_request_confirmation":
        return {"choice": "blue"} if (wait["tool_call"] or {}).get("name") else "blue"
    return {"confirmed": True, "payload": {"days": 3}}


SHAPES = {
    "tools of every kind": Shape(
        build=kinds, feature="functions, async functions, `FunctionTool`, `BaseTool`", in_flight=4
    ),
    "generator tools": Shape(build=generators, feature="generator tools", in_flight=8),
    "a generator tool that asks": Shape(
        build=asking_generator,
        feature="generator tools that ask",
        waits=(1,),
        in_flight=3,
        stock="what runs beside it runs again",
    ),
    "two generator tools that ask": Shape(
        build=two_asking_generators,
        feature="generator tools that ask",
        waits=(2,),
        in_flight=4,
        stock="what runs beside them runs again",
    ),
    "a generator tool that asks beside a branch": Shape(
        build=asking_in_branches,
        feature="generator tools that ask",
        waits=(1,),
        in_flight=4,
        stock="what runs beside it runs again",
    ),
    "tool results of every kind": Shape(
        build=results,
        feature="media parts, pydantic models, dataclasses, `None`",
        in_flight=6,
        reentered=(("seen",),),
    ),
    "tools that fail": Shape(
        build=errors, feature="`on_tool_error_callback`", in_flight=3, reentered=(("error",),)
    ),
    "tools that act on the session": Shape(
        build=actions,
        feature="state, artifacts, transfer, `skip_summarization` by a tool",
        app=lambda ledger: {"artifact_service": artifacts_of(ledger)},
        bumps=True,
    ),
    "a tool that ends a loop": Shape(
        build=escalating, feature="`exit_loop`", repeats={("model", "worker", 1): 2}
    ),
    "parallel tools in parallel branches write state": Shape(
        build=parallel_states, feature="parallel state", in_flight=6
    ),
    "a toolset whose tools ask": Shape(
        build=toolset,
        feature="`BaseToolset`, confirmed and dynamic",
        waits=(1, 1, 1),
        answer=answer,
        in_flight=3,
        repeats={("model", "root", 4): 2},
    ),
    "a tool that is declined": Shape(
        build=declined,
        feature="declined tools",
        waits=(1,),
        answer=lambda _: {"confirmed": False},
        in_flight=3,
    ),
    "OpenAPI": Shape(build=over_http, feature="`OpenAPIToolset`", in_flight=3),
    "MCP": Shape(build=over_mcp, feature="`McpToolset`", waits=(1,), in_flight=4),
    "tools of the model": Shape(build=built_in, feature="built-in tools of the model"),
    "memory and artifacts": Shape(
        build=remembering,
        feature="`load_memory`, `preload_memory`, `load_artifacts`",
        in_flight=3,
        bumps=True,
        app=lambda ledger: {
            "artifact_service": artifacts_of(ledger),
            "memory_service": Remembers(ledger),
        },
        reentered=(("memory", "go"),),
    ),
    "a choice and an answer that comes later": Shape(
        build=choosing, feature="`get_user_choice`", waits=(1, 1), answer=answer
    ),
    "a typed output beside tools": Shape(build=typed_output, feature="`output_schema` with tools"),
    "tools in threads": Shape(
        build=in_threads,
        feature="`RunConfig.tool_thread_pool_config`",
        run_config=pooled,
        in_flight=4,
    ),
}
