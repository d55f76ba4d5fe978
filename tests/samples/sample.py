"""What a sample is: an ADK program as its user writes it, and what it must do, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.adk.models.llm_request import LlmRequest
from google.genai import types

from durable_adk.testing import ScriptedModel
from tests.support.lives import Case, Ledger

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An open question as a person sees it, whoever shows it.

    Attributes:
        kind: ADK's function name: ``adk_request_confirmation``, ``adk_request_input``.
        text: The message or hint, or empty.
        payload: What the program sent along, or None.
        tool: The tool to confirm or to answer for, or empty.
        args: That tool's arguments.
    """

    kind: str
    text: str = ""
    payload: Any = None
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sample(Case):
    """A program, its conversation, and what is right at its end.

    Attributes:
        reply: How a person answers each question; confirmations are given without it.
        rows: Every ledger row and how often it must be there.
        last: The last text of the conversation, or the last output of the root.
        kept: Session state at the end (keys that must be there).
        services: ADK's services for the runner, made over the ledger's folder.
        waits: How many questions are open each time the program waits.
        stock: How plain ADK goes wrong with the same answers; empty where it does not.
    """

    rows: Mapping[Row, int]
    last: Any
    reply: Callable[[Asked], Any] | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    services: Callable[[Ledger], Mapping[str, Any]] | None = None
    waits: tuple[int, ...] = ()
    stock: str = ""

    def __post_init__(self) -> None:
        """The same person and services for the lives in forked processes."""
        object.__setattr__(self, "answer", lambda wait: self.replied(_asked_by_wait(wait)))
        object.__setattr__(self, "app", self.services)

    def replied(self, asked: Asked) -> Any:
        if self.reply is not None:
            return self.reply(asked)
        assert asked.kind == "adk_request_confirmation", f"nobody answers {asked}"
        return {"confirmed": True}


def _asked_by_wait(wait: Mapping[str, Any]) -> Asked:
    call = wait["tool_call"] or {"name": "", "args": {}}
    return Asked(
        kind=wait["kind"],
        text=wait["message"] or "",
        payload=wait["payload"],
        tool=call["name"],
        args=call["args"],
    )


def scripted(ledger: Ledger, name: str, *script: Any) -> ScriptedModel:
    """A model that gives its k-th reply at its k-th turn in the conversation that it sees.

    A reply is a response, or makes one of the request. Each call is a row of the ledger.
    """

    def choose(request: LlmRequest, _batches: int) -> Any:
        ledger.add("model", name)
        own = sum(content.role == "model" for content in request.contents)
        reply = script[min(own, len(script) - 1)]
        return reply(request) if callable(reply) else reply

    return ScriptedModel(model=name, script=choose, delay=0.002)


def instruction(request: LlmRequest) -> str:
    """The instruction as the model gets it, state filled in; names that ADK adds left out."""
    paragraphs = str(request.config.system_instruction or "").split("\n\n")
    return " ".join(each for each in paragraphs if not each.startswith("You are an agent."))


def _of_another_agent(content: types.Content) -> bool:
    """Whether ADK put another agent's words into the user's mouth."""
    first = content.parts[0].text if content.parts else None
    return (first or "").startswith("For context:")


def heard(request: LlmRequest) -> str:
    """The last text of the request that is not the model's own."""
    texts = [
        part.text
        for content in request.contents
        if content.role == "user" and not _of_another_agent(content)
        for part in content.parts or ()
        if part.text
    ]
    return texts[-1] if texts else ""
