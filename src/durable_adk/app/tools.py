"""Which tools may run twice: marks on tools, tools registered by an App, and ``agent.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, overload

from durable_adk._expiries import checked_expiry, expiries
from durable_adk.errors import ConfigError
from durable_adk.model.activity import POLICY_MARK, UnknownOutcome
from durable_adk.model.doubt import RECONCILE_MARK, Doubt
from durable_adk.model.due import EXPIRY_MARK, Expiry

ToolT = TypeVar("ToolT")
Policy = Literal["rerun", "fail", "ask"]


@overload
def durable_tool(tool: ToolT, /) -> ToolT: ...
@overload
def durable_tool(
    *,
    on_unknown_outcome: Policy = "rerun",
    reconcile: Callable[[Doubt], Any] | None = None,
    expires_after: object = None,
    on_expiry: object = None,
) -> Callable[[ToolT], ToolT]: ...
def durable_tool(
    tool: Any = None,
    /,
    *,
    on_unknown_outcome: Policy = "rerun",
    reconcile: Callable[[Doubt], Any] | None = None,
    expires_after: object = None,
    on_expiry: object = None,
) -> Any:
    """Say what to do when a process died in this tool and nobody knows whether it ran.

    Use it with or without brackets, on a function or on an ADK ``BaseTool``; the same object
    comes back, with its signature and docstring untouched.

    Args:
        tool: The function or tool.
        on_unknown_outcome: ``rerun`` runs it again under the same idempotency key
            (``current_activity_id()``); ``fail`` never runs it twice and fails the execution;
            ``ask`` suspends the execution on an ``in_doubt`` wait: ``{"outcome": "done",
            "result": ...}`` is taken for what it returned, and must fit its return annotation;
            ``{"outcome": "not_done"}`` runs it again under the same key.
        reconcile: A function, sync or async, that looks the effect up: it is called with a
            ``Doubt`` before anything runs, and returns the same two answers, or None where it does
            not know: then ``fail`` or ``ask`` applies. Its answer is recorded. What it raises ends
            the attempt; in the last one it counts as not knowing. An answer above ``payload.max``
            ends the execution (``NotStorable``).
        expires_after: How long its confirmation, or the answer of a tool that runs long, is
            waited for: seconds, a ``timedelta``, or text with a unit (``24h``).
        on_expiry: What counts then, for a confirmation ``{"confirmed": False}`` by default. A tool
            that runs long needs one; its confirmation is denied then.

    Raises:
        ConfigError: not a tool, not a policy, a ``reconcile`` that nobody would call, or no expiry.
    """
    policy = checked_policy("durable_tool", on_unknown_outcome, reconcile=reconcile)
    expiry = checked_expiry("durable_tool", expires_after, on_expiry)

    def mark(tool: ToolT) -> ToolT:
        tool_name("durable_tool", tool)
        try:
            setattr(tool, POLICY_MARK, policy)
            setattr(tool, RECONCILE_MARK, reconcile)
            if expiry is not None:
                setattr(tool, EXPIRY_MARK, expiry)
        except (AttributeError, TypeError):
            raise ConfigError(
                f"durable_tool: {tool!r}",
                "takes no mark",
                "Mark the function that it calls, or name it under tools: in agent.yaml.",
            ) from None
        return tool

    return mark if tool is None else mark(tool)


def checked_policy(
    what: str,
    on_unknown_outcome: object,
    *,
    reconcile: object = None,
) -> UnknownOutcome:
    """The policy, if it is one."""
    try:
        policy = UnknownOutcome(on_unknown_outcome)
    except ValueError:
        raise ConfigError(
            f"{what}: on_unknown_outcome",
            f"expected rerun, fail or ask, got {on_unknown_outcome!r}",
            "Use one of them.",
        ) from None
    if reconcile is not None and (not callable(reconcile) or policy is UnknownOutcome.RERUN):
        raise ConfigError(
            f"{what}: reconcile",
            "nobody would call it: a tool that is run again is never in doubt"
            if callable(reconcile)
            else f"expected a function, got {reconcile!r}",
            'Pass a function, with on_unknown_outcome="ask" or "fail".',
        )
    return policy


def tool_name(what: str, tool: object) -> str:
    """What a model calls a function or a ``BaseTool`` by.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(tool, type):
        # A BaseTool by its shape: importing ADK's class here would load ADK.
        name = getattr(tool, "name", None)
        if isinstance(name, str) and callable(getattr(tool, "run_async", None)):
            return name
        name = getattr(tool, "__name__", None)
        if callable(tool) and isinstance(name, str):
            return name
    raise ConfigError(
        what, f"expected a function or a tool, got {tool!r}", "Decorate a function or a BaseTool."
    )


class ToolRegistry:
    """The tools that one App was told about. Registering changes nothing on the tool.

    Attributes:
        reconcilers: ``reconcile`` callbacks by tool name.
    """

    def __init__(self) -> None:
        self._tools: dict[str, tuple[object, UnknownOutcome]] = {}
        self.reconcilers: dict[str, Callable[[Doubt], Any]] = {}
        self._expiries: dict[str, Expiry] = {}

    def add(
        self,
        tool: object,
        policy: UnknownOutcome,
        *,
        reconcile: Callable[[Doubt], Any] | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        name = tool_name("app.tool", tool)
        known = self._tools.get(name)
        if known is not None and known[0] is not tool:
            raise ConfigError(
                f"app.tool: {name!r}",
                "is registered already for another tool",
                "Give the tools different names: a model calls them by name.",
            )
        self._tools[name] = (tool, policy)
        self.reconcilers.pop(name, None)
        if reconcile is not None:
            self.reconcilers[name] = reconcile
        if expiry is not None:
            self._expiries[name] = expiry

    def tools(self) -> list[Any]:
        """The registered tools, in order of registration."""
        return [tool for tool, _policy in self._tools.values()]

    def expiries(
        self, configured: Mapping[str, Mapping[str, Any]], *, source: str
    ) -> dict[str, Expiry]:
        """How their questions expire, by tool name, with what the configuration says."""
        return expiries(self._expiries, configured, source=source)

    def policies(self, configured: Mapping[str, str], *, source: str) -> dict[str, UnknownOutcome]:
        """The policy by tool name, of the registered tools and of ``tools.<name>``.

        Raises:
            ConfigError: the code and the configuration say different things about one tool.
        """
        # The default says nothing: a registered tool that no agent has is no mistake then.
        policies: dict[str, UnknownOutcome] = {
            name: policy
            for name, (_tool, policy) in self._tools.items()
            if policy is not UnknownOutcome.RERUN
        }
        for name, text in configured.items():
            policy = UnknownOutcome(text)
            here = policies.get(name)
            if here is not None and here is not policy:
                raise ConfigError(
                    f"{source}: tools.{name}.on_unknown_outcome",
                    f"is {text}, and the code says {here.value}",
                    "Say it in one place.",
                )
            policies[name] = policy
        return policies
