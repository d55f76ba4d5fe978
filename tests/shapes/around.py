"""Shapes of what surrounds agents: code executors, artifacts, compaction, planners, instructions,
schemas, state scopes, memory, and ADK's ``App``."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.artifacts import FileArtifactService
from google.adk.code_executors import (
    BaseCodeExecutor,
    BuiltInCodeExecutor,
    UnsafeLocalCodeExecutor,
)
from google.adk.code_executors.code_execution_utils import CodeExecutionResult, File
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import BuiltInPlanner, PlanReActPlanner
from google.adk.plugins.global_instruction_plugin import GlobalInstructionPlugin
from google.adk.plugins.save_files_as_artifacts_plugin import SaveFilesAsArtifactsPlugin
from google.adk.tools import load_memory
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.adk.workflow import START, Workflow
from google.genai import types
from pydantic import BaseModel

from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.faults.catalogue import Tools, agent
from tests.shapes.shape import Shape
from tests.support.lives import Ledger

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
CSV = b"a,b\n1,2\n"


def texts(request: Any) -> str:
    """All text that a model is asked with."""
    parts = [part for content in request.contents for part in content.parts or ()]
    return "\n".join(part.text for part in parts if part.text)


def digest(text: str) -> str:
    """A text in short, without ids."""
    plain = re.sub(r"adk-[0-9a-f-]{18,}", "(id)", text)
    return hashlib.sha256(plain.encode()).hexdigest()[:8]


def files(ledger: Ledger) -> Mapping[str, Any]:
    """Artifacts that outlive a process."""
    return {"artifact_service": FileArtifactService(root_dir=f"{ledger.path}.artifacts")}


# ---------------------------------------------------------------- code executors


class Sandbox(BaseCodeExecutor):
    """Counts what it runs in a ledger and leaves a file that is no text."""

    ledger: str
    fails: bool = False

    def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
        given = code_execution_input
        names = ",".join(file.name for file in given.input_files)
        code = "explore" if "explore_df" in given.code else given.code
        Ledger(Path(self.ledger)).add("code", code, names, given.execution_id)
        time.sleep(0.004)
        if self.fails:
            return CodeExecutionResult(stderr="no such name")
        return CodeExecutionResult(
            stdout=f"ran {code}",
            output_files=[File(name=f"{code}.png", content=PNG, mime_type="image/png")],
        )


def code(text: str) -> LlmResponse:
    return says(f"I compute.\n```tool_code\n{text}\n```\nthat is all")


def by_outputs(ledger: Ledger, name: str, *script: Any, **fields: Any) -> LlmAgent:
    """An agent whose k-th outcome of code or of a tool in the prompt chooses the reply."""

    def choose(request: Any, turn: int) -> Any:
        k = texts(request).count("```tool_output") + turn
        ledger.add("model", name, k)
        return script[min(k, len(script) - 1)]

    return LlmAgent(name=name, model=ScriptedModel(model=name, script=choose), **fields)


def computes(ledger: Ledger, **fields: Any) -> LlmAgent:
    return by_outputs(
        ledger,
        "coder",
        code("one"),
        calls(("pay", {"amount": 1})),
        code("two"),
        code("three"),
        says("done"),
        tools=[Tools(ledger).confirmed_pay],
        code_executor=Sandbox(ledger=str(ledger.path), **fields),
    )


def computes_at_once(ledger: Ledger) -> SequentialAgent:
    """Two agents that share an executor, at once, and one after them that asks."""
    sandbox = Sandbox(ledger=str(ledger.path))

    def coder(name: str) -> LlmAgent:
        return by_outputs(
            ledger, name, code(f"of {name}"), says(f"{name} done"), code_executor=sandbox
        )

    both = ParallelAgent(name="both", sub_agents=[coder("a"), coder("b")])
    payer = agent(
        ledger,
        "payer",
        calls(("pay", {"amount": 1})),
        says("paid"),
        tools=[Tools(ledger).confirmed_pay],
    )
    return SequentialAgent(name="seq", sub_agents=[both, payer])


def local_python(ledger: Ledger) -> LlmAgent:
    """Python in a process of its own, which writes to the ledger itself."""
    program = (
        "import os\n"
        "flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY\n"
        "handle = os.open(os.environ['AROUND_LEDGER'], flags)\n"
        'os.write(handle, b\'["code", "local"]\\n\')\n'
        "print(6 * 7)"
    )
    os.environ["AROUND_LEDGER"] = str(ledger.path)  # a text of its own would be in the events
    return by_outputs(
        ledger, "coder", code(program), says("done"), code_executor=UnsafeLocalCodeExecutor()
    )


def draws(ledger: Ledger) -> LlmAgent:
    """A model that runs code itself and answers with an image, which ADK saves."""

    def script(request: Any, turn: int) -> LlmResponse:
        ledger.add("model", "artist", turn)
        if turn:
            return says("done")
        image = types.Blob(data=PNG, mime_type="image/png", display_name="drawing.png")
        call = types.FunctionCall(name="pay", args={"amount": 1})
        parts = [types.Part(inline_data=image), types.Part(function_call=call)]
        return LlmResponse(content=types.Content(role="model", parts=parts))

    return LlmAgent(
        name="artist",
        model=ScriptedModel(model="gemini-2.5-flash", script=script),
        tools=[Tools(ledger).pay],
        code_executor=BuiltInCodeExecutor(),
    )


# ---------------------------------------------------------------- artifacts


def keeps_reports(ledger: Ledger) -> LlmAgent:
    """Callbacks that save artifacts, each a version of one file."""

    async def save(callback_context: Any, **_: Any) -> None:
        part = types.Part.from_bytes(data=b"report", mime_type="text/plain")
        version = await callback_context.save_artifact("report.txt", part)
        callback_context.state["saved"] = version >= 0  # a body that is cut off saves another one

    tools = Tools(ledger)
    return agent(
        ledger,
        "root",
        calls(("slow", {"q": "a"}), ("slow", {"q": "b"})),
        calls(("pay", {"amount": 1})),
        says("done"),
        tools=[tools.slow, tools.confirmed_pay],
        before_agent_callback=save,
        after_agent_callback=save,
        before_model_callback=lambda callback_context, llm_request: save(callback_context),
    )


def tool_keeps_a_file(ledger: Ledger) -> LlmAgent:
    async def keep(name: str, why: str, tool_context: Any) -> dict[str, Any]:
        """Keep a file and read it back."""
        ledger.add("tool", "keep", name, why)
        part = types.Part.from_bytes(data=PNG, mime_type="image/png")
        version = await tool_context.save_artifact(name, part)
        return {"saved": version >= 0, "files": await tool_context.list_artifacts()}

    tools = Tools(ledger)
    return agent(
        ledger,
        "root",
        calls(("keep", {"name": "a.png", "why": "first"})),
        calls(("keep", {"name": "a.png", "why": "again"})),
        calls(("pay", {"amount": 1})),
        says("done"),
        tools=[keep, tools.confirmed_pay],
    )


# ---------------------------------------------------------------- compaction


def summarized(ledger: Ledger, config: EventsCompactionConfig) -> App:
    """An agent that looks and pays in each turn, with a ledger row for each of its model calls."""
    tools = Tools(ledger)

    def script(request: Any, turn: int) -> Any:
        last = request.contents[-1]
        responses = [part.function_response for part in last.parts if part.function_response]
        answered = responses[0].name if responses else last.parts[0].text
        if not responses:
            reply = calls(("look", {"q": answered}))
        elif answered == "look":
            reply = calls(("pay", {"amount": len(texts(request))}))
        else:
            answered = f"{answered} {responses[0].response}"
            reply = says("turn done")
        ledger.add("model", "desk", answered, len(request.contents), len(texts(request)))
        return reply

    model = ScriptedModel(model="desk", script=script)
    desk = LlmAgent(name="desk", model=model, tools=[tools.look, tools.confirmed_pay])
    return App(name="lives", root_agent=desk, events_compaction_config=config)


def summary_model(ledger: Ledger) -> ScriptedModel:
    def script(request: Any, turn: int) -> LlmResponse:
        ledger.add("summary", digest(texts(request)))
        return says(f"summary of {texts(request).count('called tool')} calls")

    return ScriptedModel(model="summary", script=script)


def sliding(ledger: Ledger) -> App:
    summarizer = LlmEventSummarizer(llm=summary_model(ledger))
    config = EventsCompactionConfig(summarizer=summarizer, compaction_interval=2, overlap_size=1)
    return summarized(ledger, config)


def by_tokens(ledger: Ledger) -> App:
    """Summaries in the middle of a turn: before a model call of the agent."""
    summarizer = LlmEventSummarizer(llm=summary_model(ledger))
    config = EventsCompactionConfig(
        summarizer=summarizer, token_threshold=8, event_retention_size=2
    )
    return summarized(ledger, config)


def own_model_summarizes(ledger: Ledger) -> App:
    """The default: the root agent's model writes the summaries."""
    made = summarized(ledger, EventsCompactionConfig(compaction_interval=1, overlap_size=0))
    model: Any = made.root_agent.model  # type: ignore[union-attr]
    choose = model.script

    def script(request: Any, turn: int) -> Any:
        if "conversation history" in texts(request):
            ledger.add("summary", digest(texts(request)))
            return says("summary by the agent's model")
        return choose(request, turn)

    model.script = script
    return made


class Counting(BaseEventsSummarizer):
    """Summarizes without a model."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        self.ledger.add("summary", len(events), events[-1].invocation_id)
        text = types.Content(role="model", parts=[types.Part(text=f"{len(events)} events")])
        compaction = EventCompaction(
            start_timestamp=events[0].timestamp,
            end_timestamp=events[-1].timestamp,
            compacted_content=text,
        )
        return Event(
            author="user",
            actions=EventActions(compaction=compaction),
            invocation_id=Event.new_id(),
        )


def own_summarizer(ledger: Ledger) -> App:
    config = EventsCompactionConfig(
        summarizer=Counting(ledger), compaction_interval=1, overlap_size=0
    )
    return summarized(ledger, config)


# ---------------------------------------------------------------- planners, instructions, schemas


def plans(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    plan = "/*PLANNING*/ look, pay, tell /*ACTION*/ "
    call = types.Part(function_call=types.FunctionCall(name="look", args={"q": "a"}))
    first = types.Content(role="model", parts=[types.Part(text=plan), call])
    return agent(
        ledger,
        "root",
        LlmResponse(content=first),
        calls(("pay", {"amount": 1})),
        says("/*REASONING*/ paid /*FINAL_ANSWER*/ done"),
        tools=[tools.look, tools.confirmed_pay],
        planner=PlanReActPlanner(),
        output_key="answer",
    )


def thinks(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    thought = types.Part(text="let me think", thought=True)
    call = types.Part(function_call=types.FunctionCall(name="pay", args={"amount": 1}))
    config = types.ThinkingConfig(include_thoughts=True)
    return agent(
        ledger,
        "root",
        LlmResponse(content=types.Content(role="model", parts=[thought, call])),
        says("done"),
        tools=[tools.confirmed_pay],
        planner=BuiltInPlanner(thinking_config=config),
    )


def instructed(ledger: Ledger) -> App:
    """Instructions that are functions, also of the state, and a template."""
    tools = Tools(ledger)

    async def provider(context: Any) -> str:
        return f"seen so far: {context.state.get('answer', 'nothing')}"

    def told(callback_context: Any, llm_request: Any) -> None:
        callback_context.state["told"] = llm_request.config.system_instruction

    helper = agent(
        ledger,
        "helper",
        calls(("pay", {"amount": 1})),
        says("helped"),
        description="helper",
        instruction="the topic is {topic?} and {told?}",
        tools=[tools.confirmed_pay],
        output_key="answer",
    )
    root = agent(
        ledger,
        "root",
        calls(("transfer_to_agent", {"agent_name": "helper"})),
        static_instruction="always polite",
        instruction=provider,
        before_model_callback=told,
        sub_agents=[helper],
    )
    everywhere = GlobalInstructionPlugin(lambda context: f"in session {context.session.id}")
    return App(name="lives", root_agent=root, plugins=[everywhere])


class Bill(BaseModel):
    amount: int
    what: str = "lunch"


def typed(ledger: Ledger) -> LlmAgent:
    """``output_schema`` with tools, over a typed agent as a tool."""
    tools = Tools(ledger)
    inner = agent(
        ledger,
        "cashier",
        calls(("slow", {"q": "in"})),
        says('{"amount": 3, "what": "dinner"}'),
        description="cashier",
        input_schema=Bill,
        output_schema=Bill,
        tools=[tools.slow],
    )
    return agent(
        ledger,
        "root",
        calls(("cashier", {"amount": 2})),
        calls(("pay", {"amount": 3})),
        calls(("set_model_response", {"amount": 3, "what": "dinner"})),
        says('{"amount": 3, "what": "dinner"}'),
        tools=[AgentTool(inner), tools.confirmed_pay],
        output_schema=Bill,
        output_key="bill",
    )


class FlowState(BaseModel):
    count: int = 0
    bill: Bill | None = None


def with_state_schema(ledger: Ledger) -> Workflow:
    tools = Tools(ledger)

    def first(node_input: Any, ctx: Any) -> str:
        ledger.add("node", "first")
        ctx.state["count"] = 1
        ctx.state["bill"] = Bill(amount=2)
        return "first"

    def last(ctx: Any, count: int) -> str:
        ledger.add("node", "last", count)
        ctx.state["count"] = count + 1
        return f"{count}"

    payer = agent(
        ledger, "payer", calls(("pay", {"amount": 1})), says("paid"), tools=[tools.confirmed_pay]
    )
    edges = [(START, first), (first, payer), (payer, last)]
    return Workflow(name="flow", state_schema=FlowState, edges=edges)


def scopes(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)

    def note(k: str, tool_context: Any) -> dict[str, Any]:
        """Note something in every scope."""
        state = tool_context.state
        ledger.add("tool", "note", k, state.get("user:n", 0), state.get("temp:n", 0))
        for scope in ("", "user:", "app:", "temp:"):
            state[f"{scope}n"] = state.get(f"{scope}n", 0) + 1
        return {"n": [state[f"{scope}n"] for scope in ("", "user:", "app:", "temp:")]}

    return agent(
        ledger,
        "root",
        calls(("note", {"k": "a"})),
        calls(("note", {"k": "b"})),
        calls(("pay", {"amount": 1})),
        calls(("note", {"k": "c"})),
        says("done"),
        tools=[note, tools.confirmed_pay],
    )


class FileMemory(BaseMemoryService):
    """Remembers in the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def add_session_to_memory(self, session: Any) -> None:
        self.ledger.add("memory", len(session.events) > 0)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        content = types.Content(role="user", parts=[types.Part(text=f"I like blue ({query})")])
        return SearchMemoryResponse(memories=[MemoryEntry(content=content, author="user")])


def remembers(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)

    async def keep(callback_context: Any) -> None:
        await callback_context.add_session_to_memory()

    return agent(
        ledger,
        "root",
        calls(("load_memory", {"query": "colour"})),
        calls(("pay", {"amount": 1})),
        says("done"),
        tools=[load_memory, PreloadMemoryTool(), tools.confirmed_pay],
        after_agent_callback=keep,
    )


# ---------------------------------------------------------------- ADK's App


def whole_app(ledger: Ledger) -> App:
    """Plugins, resumability, compaction and a context cache together."""
    made = sliding(ledger)
    return App(
        name="lives",
        root_agent=made.root_agent,
        plugins=[SaveFilesAsArtifactsPlugin()],
        events_compaction_config=made.events_compaction_config,
        context_cache_config=ContextCacheConfig(),
        resumability_config=ResumabilityConfig(is_resumable=True),
    )


EXECUTORS, COMPACTION = "code executors", "context compaction"
THREE = ("first", "second", "third")

SHAPES = {
    "code in a sandbox": Shape(
        build=computes, feature=EXECUTORS, waits=(1,), app=files, bumps=True, in_flight=3
    ),
    "code that keeps its state": Shape(
        build=lambda ledger: computes(ledger, stateful=True),
        feature=EXECUTORS,
        waits=(1,),
        app=files,
        bumps=True,
        in_flight=3,
    ),
    "code of two agents at once": Shape(
        build=computes_at_once, feature=EXECUTORS, waits=(1,), app=files, bumps=True, in_flight=4
    ),
    "code in a local process": Shape(build=local_python, feature=EXECUTORS, app=files, bumps=True),
    "code that the model runs": Shape(build=draws, feature=EXECUTORS, app=files, bumps=True),
    "artifacts that callbacks save": Shape(
        build=keeps_reports, feature="artifacts", waits=(1,), app=files, bumps=True, in_flight=3
    ),
    "artifacts that tools save": Shape(
        build=tool_keeps_a_file, feature="artifacts", waits=(1,), app=files, bumps=True
    ),
    "summaries of turns": Shape(
        build=sliding, feature=COMPACTION, waits=(1, 1, 1), messages=THREE, repeats={}
    ),
    "summaries by tokens": Shape(
        build=by_tokens, feature=COMPACTION, waits=(1, 1, 1), messages=THREE
    ),
    "summaries by the agent's model": Shape(
        build=own_model_summarizes, feature=COMPACTION, waits=(1, 1), messages=THREE[:2]
    ),
    "summaries of one's own": Shape(
        build=own_summarizer, feature=COMPACTION, waits=(1, 1), messages=THREE[:2]
    ),
    "a planner": Shape(build=plans, feature="planners", waits=(1,)),
    "a model that thinks": Shape(build=thinks, feature="planners", waits=(1,)),
    "instructions that are functions": Shape(
        build=instructed, feature="instructions as functions, global and static", waits=(1,)
    ),
    "typed input and output": Shape(
        build=typed, feature="`input_schema`, `output_schema` with tools", waits=(1,)
    ),
    "a state schema": Shape(build=with_state_schema, feature="`state_schema`", waits=(1,)),
    "state scopes": Shape(build=scopes, feature="`user:`, `app:`, `temp:` state", waits=(1,)),
    "memory": Shape(
        build=remembers,
        feature="memory",
        waits=(1,),
        app=lambda ledger: {"memory_service": FileMemory(ledger)},
        reentered=(("memory",),),
    ),
    "an App of ADK": Shape(
        build=whole_app,
        feature="ADK's `App`: plugins, compaction, context cache, resumability",
        waits=(1, 1),
        messages=THREE[:2],
        app=files,
        bumps=True,
    ),
}
