"""How an App learns what to run: its root agent, and tools with their policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from durable_adk._expiries import checked_expiry
from durable_adk.app import checks, late
from durable_adk.app.lifecycle import Root
from durable_adk.app.tools import Policy, ToolRegistry, checked_policy
from durable_adk.errors import ConfigError
from durable_adk.model.doubt import Doubt
from durable_adk.model.identity import checked_id

ToolT = TypeVar("ToolT")
BuildT = TypeVar("BuildT", bound=Callable[[], object])


class Building:
    """The part of ``App`` that is used before it opens."""

    def __init__(self, name: str, root_agent: object) -> None:
        self.name = checked_id("App(name)", name)
        self._root = Root(agent=root_agent)
        self._registry = ToolRegistry()

    @overload
    def tool(self, tool: ToolT, /) -> ToolT: ...
    @overload
    def tool(
        self,
        /,
        *,
        on_unknown_outcome: Policy = "rerun",
        reconcile: Callable[[Doubt], Any] | None = None,
        expires_after: object = None,
        on_expiry: object = None,
    ) -> Callable[[ToolT], ToolT]: ...
    def tool(
        self,
        tool: Any = None,
        /,
        *,
        on_unknown_outcome: Policy = "rerun",
        reconcile: Callable[[Doubt], Any] | None = None,
        expires_after: object = None,
        on_expiry: object = None,
    ) -> Any:
        """Register a tool for ``tools()``, and what to do when nobody knows whether it ran.

        With or without brackets; the function comes back unchanged. See ``durable_tool``.
        """
        policy = checked_policy("app.tool", on_unknown_outcome, reconcile=reconcile)
        expiry = checked_expiry("app.tool", expires_after, on_expiry)

        def register(tool: ToolT) -> ToolT:
            self._registry.add(tool, policy, reconcile=reconcile, expiry=expiry)
            return tool

        return register if tool is None else register(tool)

    def tools(self) -> list[Any]:
        """The registered tools, in order of registration."""
        return self._registry.tools()

    def llm(self, name: str) -> Any:
        """The model that ADK knows under this name.

        Raises:
            ConfigError: ADK knows none.
        """
        return late.make_llm(checks.checked_text("app.llm(name)", name))

    def entrypoint(self, build: BuildT) -> BuildT:
        """Make this function the source of the root agent. It runs once, at open; may be async.

        Raises:
            ConfigError: the App has a root agent or an entrypoint already.
        """
        if not callable(build):
            raise ConfigError("app.entrypoint", f"{build!r} is no function", "Decorate one.")
        if self._root.agent is not None or self._root.build is not None:
            raise ConfigError(
                f"App {self.name!r}: entrypoint",
                "the App has a root agent already",
                "Pass root_agent=, or use one entrypoint.",
            )
        self._root.build = build
        return build
