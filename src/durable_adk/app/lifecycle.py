"""When an App is open: on which loop, over which client, around which root.

Nothing here runs before the first call. Everything that is opened belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from durable_adk.adk import versions
from durable_adk.app import late
from durable_adk.app.checks import checked_client
from durable_adk.app.failures import Failures
from durable_adk.app.stores import make_store
from durable_adk.app.tools import ToolRegistry
from durable_adk.config import Settings
from durable_adk.engine.ports import Clock, Faults, NoFaults
from durable_adk.engine.service import Engine
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import ConfigError, DurabilityDisabled
from durable_adk.model.identity import Tenant
from durable_adk.store.mongo import MongoStore

if TYPE_CHECKING:
    from durable_adk.adk.adapter import Adapter


@dataclass(frozen=True, slots=True)
class Opened:
    """What an open App works with.

    Attributes:
        program: The agent, as it turns messages and events into payloads and back. Without a
            root it does only that.
        failures: What left the root of executions that somebody watches.
        has_root: Whether there is an agent to run.
    """

    engine: Engine
    store: MongoStore
    program: Adapter
    failures: Failures
    has_root: bool


@dataclass(slots=True, kw_only=True)
class Root:
    """Where the root agent comes from: given, or built once by an entrypoint."""

    agent: object = None
    build: Callable[[], object] | None = None
    adk_app: object = None

    @property
    def is_given(self) -> bool:
        return self.agent is not None or self.build is not None

    async def get(self, app_name: str) -> object:
        """The root, built on the first call; None if none is given."""
        if self.agent is None and self.build is not None:
            built = self.build()
            self.agent = await built if inspect.isawaitable(built) else built
            if self.agent is None:
                raise ConfigError(
                    f"App {app_name!r}: entrypoint", "returned nothing", "Return the root agent."
                )
        return self.agent


class Lifecycle:
    """Opens on the first call, closes once, and opens again if it may."""

    def __init__(
        self,
        name: str,
        *,
        settings: Settings,
        root: Root,
        registry: ToolRegistry,
        mongodb: object,
        parts: Mapping[str, Any],
        clock: Clock | None = None,
        faults: Faults | None = None,
        max_attempts: int | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.root = root
        self.tenant = Tenant(settings.namespace, name)
        self._registry = registry
        self.mongodb = checked_client(mongodb) if mongodb is not None else settings.uri
        self._given = dict(parts)
        self.parts = dict(parts)
        self.parts["artifact_service"] = late.artifacts_of_app(
            parts.get("artifact_service"), self._opened_store, self.tenant
        )
        self._clock = clock
        self._faults = faults if faults is not None else NoFaults()
        self._max_attempts = max_attempts or settings.max_attempts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._opened: Opened | None = None
        self._has_toolsets = False

    def with_attempts(self, max_attempts: int) -> Lifecycle:
        """The same with another number of attempts; itself if that is the same number."""
        if max_attempts == self._max_attempts:
            return self
        return Lifecycle(
            self.name,
            settings=self.settings,
            root=self.root,
            registry=self._registry,
            mongodb=self.mongodb,
            parts=self._given,
            clock=self._clock,
            faults=self._faults,
            max_attempts=max_attempts,
        )

    @property
    def artifact_service(self) -> Any:
        """What the user gave, with forks that read their source's artifacts; or None."""
        return self.parts["artifact_service"]

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def has_run(self) -> bool:
        """Whether its root was opened, and it was not closed since."""
        return self._has_toolsets

    def check_enabled(self) -> None:
        """Refuse to run anything unless durability is switched on.

        Raises:
            DurabilityDisabled: naming the file and the key.
        """
        settings = self.settings
        if settings.durable_workflow:
            return
        if not settings.found:
            reason = f"there is no {settings.source} in the working folder that switches it on"
        else:
            reason = "is off or missing"
        raise DurabilityDisabled(
            f"{settings.source}: features.durable_workflow",
            reason,
            "Set features.durable_workflow: true there, or pass config=. Nothing was run.",
        )

    async def opened(self) -> Opened:
        """What the App works with, opened on the running loop if it is not open.

        Raises:
            DurabilityDisabled: ``features.durable_workflow`` is off or missing.
            ConfigError: open on another loop; no MongoDB; what ``Store.open`` refuses.
            UnsupportedNode: the root has a part that cannot be made durable.
            Unavailable: MongoDB did not answer.
        """
        self.check_enabled()
        self._check_loop()
        if self._opened is not None:
            return self._opened
        async with self._lock:
            self._check_loop()
            if self._opened is None:
                self._loop = asyncio.get_running_loop()
                try:
                    self._opened = await self._open()
                finally:
                    if self._opened is None:
                        self._loop = None
            return self._opened

    async def _opened_store(self) -> MongoStore:
        return (await self.opened()).store

    async def opened_to_run(self) -> Opened:
        """``opened``, for what runs the agent or closes a turn of it.

        Raises:
            ConfigError: there is no root agent; and as ``opened``.
        """
        self.check_enabled()
        if not self.root.is_given:
            raise ConfigError(
                f"App {self.name!r}",
                "has no root agent, which this call runs",
                "Pass root_agent=, or decorate a function that returns it with @app.entrypoint.",
            )
        opened = await self.opened()
        if not opened.has_root:
            raise ConfigError(
                f"App {self.name!r}",
                "was opened before it had its root agent",
                "Decorate the entrypoint before the first call; or close the App and call again.",
            )
        return opened

    async def close(self, *, keeps_toolsets: bool = False) -> None:
        """Let attempts run for ``shutdown.grace``, release the rest, close an own client and the
        agents' toolsets."""
        self._check_loop()
        async with self._lock:
            opened, self._opened = self._opened, None
            try:
                if opened is not None:
                    await _shut(opened.engine, opened.store)
            finally:
                self._loop = None
                if self._has_toolsets and not keeps_toolsets:
                    self._has_toolsets = False
                    await late.toolsets_closed(self)
        self._lock = asyncio.Lock()  # a lock belongs to the loop that it was waited for on

    def plugins(self) -> list[Any]:
        """Those of the root, if it is an ADK ``App``, and those that were given."""
        apps = (self.root.agent, self.root.adk_app)
        of_root = [one for app in apps for one in getattr(app, "plugins", None) or ()]
        return [*of_root, *self.parts.get("plugins", ())]

    def _check_loop(self) -> None:
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise ConfigError(
                f"App {self.name!r}",
                "is open on another event loop",
                "Close it on the loop that opened it, or make one App for each loop.",
            )

    async def _open(self) -> Opened:
        root = await self.root.get(self.name)
        program = late.make_adapter(
            root,
            app_name=self.name,
            adk_app=self.root.adk_app,
            tool_policies=self._registry.policies(self.settings.tools, source=self.settings.source),
            keeps_secrets=bool(self.settings.encryption_keys),
            reconcilers=self._registry.reconcilers,
            tool_expiries=self._registry.expiries(
                self.settings.expiries, source=self.settings.source
            ),
            payload_max=self.settings.payload_max,
            redact=self.settings.redact,
            **self.parts,
        )
        if root is not None:
            program.check()
        failures = Failures(program)
        store = make_store(self.settings, self.mongodb, clock=self._clock, faults=self._faults)
        engine = Engine(
            store,
            failures,
            store.clock,
            self.tenant,
            self._engine_settings(),
            faults=self._faults,
        )
        try:
            await engine.open()
        except BaseException:
            await _shut(engine, store)
            raise
        if root is not None:
            late.toolsets_opened(self, root, self.plugins())
            self._has_toolsets = True
        return Opened(engine, store, program, failures, has_root=root is not None)

    def _engine_settings(self) -> EngineSettings:
        settings = self.settings
        names = {field.name for field in dataclasses.fields(EngineSettings)}
        shared = {name: getattr(settings, name) for name in names if hasattr(settings, name)}
        running = versions.running(settings.version)
        return EngineSettings(
            **{**shared, "max_attempts": self._max_attempts, "code": running.code}
        )


async def _shut(engine: Engine, store: MongoStore) -> None:
    try:
        await engine.close()
    finally:
        await store.close()
