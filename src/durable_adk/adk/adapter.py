"""The program as the engine sees it: an ADK root with its plugins and services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.adk.apps import App as AdkApp
from google.adk.events import Event
from google.adk.workflow import BaseNode
from google.genai import types

from durable_adk.adk import artifacts, check, expiring, lineage
from durable_adk.adk import events as stored
from durable_adk.adk.clone import clone_tree
from durable_adk.adk.install import install
from durable_adk.adk.marks import Policies, Reconcile
from durable_adk.adk.play import AdkPlay, open_session
from durable_adk.adk.runner import AttemptRunner
from durable_adk.adk.session import AttemptSessions
from durable_adk.adk.stage import Stage
from durable_adk.engine.attempt import Attempt
from durable_adk.errors import ConfigError
from durable_adk.model import codec
from durable_adk.model.activity import Payload, Record, UnknownOutcome
from durable_adk.model.due import Expiry
from durable_adk.model.execution import Execution, History, StepDocument


class Adapter:
    """Implements ``engine.program.Program`` for one root.

    Args:
        root: Any supported ADK node, or an ADK ``App`` around one; not changed: attempts run a
            clone.
        app_name: Shown to ADK's services.
        plugins, artifact_service, memory_service, credential_service: As for ADK's ``Runner``.
        adk_app: An ADK ``App`` whose root, plugins and settings are used instead.
        tool_policies: ``on_unknown_outcome`` by tool name.
        keeps_secrets: What is recorded is encrypted: agents may ask for credentials.
        reconcilers: ``reconcile`` callbacks by tool name.
        tool_expiries: How their questions expire, by tool name.
        redact: Names of fields whose values people are not shown.
        payload_max: Bytes of the largest value that a body may leave; None for any.
    """

    def __init__(
        self,
        root: object,
        *,
        app_name: str,
        plugins: Sequence[Any] = (),
        artifact_service: Any = None,
        memory_service: Any = None,
        credential_service: Any = None,
        adk_app: Any = None,
        tool_policies: Mapping[str, UnknownOutcome] | None = None,
        keeps_secrets: bool = False,
        reconcilers: Mapping[str, Reconcile] | None = None,
        tool_expiries: Mapping[str, Expiry] | None = None,
        payload_max: int | None = None,
        redact: frozenset[str] = frozenset(),
    ) -> None:
        if isinstance(root, AdkApp):
            root, adk_app = root.root_agent, root
        self._root = root
        self._app_name = app_name
        self._plugins = list(plugins)
        self._artifact_service = artifact_service
        self._services = {
            "memory_service": memory_service,
            "credential_service": credential_service,
        }
        self._adk_app = adk_app
        self._keeps_secrets = keeps_secrets
        self._policies = Policies(
            outcomes=dict(tool_policies or {}), reconcilers=dict(reconcilers or {})
        )
        self._expiries = dict(tool_expiries or {})
        self._payload_max = payload_max
        self._redact = redact
        install()

    def check(self) -> None:
        """Refuse what cannot be durable, before anything runs.

        Raises:
            ConfigError: no node, a policy for a tool that does not exist, or an expiry answer that
                would be refused.
            UnsupportedNode: with node path, reason, alternative.
        """
        check.check_root(self._root, self._adk_app, keeps_secrets=self._keeps_secrets)
        assert isinstance(self._root, BaseNode)
        named = {*self._policies.outcomes, *self._expiries}
        unknown = sorted(named - check.tool_names(self._root))
        if unknown and not check.has_toolsets(self._root):
            raise ConfigError(
                f"tools.{unknown[0]}",
                "no agent of the app has a tool of this name",
                "Correct the name, or remove the policy.",
            )
        expiring.check_tools(self._root, self._expiries)

    def begin(self, attempt: Attempt, history: History) -> AdkPlay:
        """Start an attempt over a session's past, on fresh clones."""
        stage = Stage(
            attempt=attempt,
            policies=self._policies,
            lineage=lineage.of(history.session, attempt.execution),
            expiries=self._expiries,
            keeps_secrets=self._keeps_secrets,
            payload_max=self._payload_max,
            redact=self._redact,
        )
        sessions = AttemptSessions(stage, *open_session(history, self._app_name))
        assert isinstance(self._root, BaseNode)
        root = clone_tree(self._root)
        return AdkPlay(stage, sessions, self._runner(root, sessions), root)

    def _runner(self, root: BaseNode, sessions: AttemptSessions) -> AttemptRunner:
        if self._adk_app is not None:
            app = self._adk_app.model_copy(update={"root_agent": root})
            app.plugins = [*app.plugins, *self._plugins]
            if app.events_compaction_config is not None:  # ADK puts its summarizer into it
                app.events_compaction_config = app.events_compaction_config.model_copy()
        else:
            app = AdkApp.model_construct(
                name=self._app_name, root_agent=root, plugins=list(self._plugins)
            )
        return AttemptRunner(
            app=app,
            app_name=self._app_name,
            session_service=sessions,
            artifact_service=artifacts.recorded(
                self._artifact_service, sessions.artifacts.note_saved
            ),
            **self._services,
        )

    def reconciler(self, intent: Record) -> Reconcile | None:
        """Whom to ask about a call that is in doubt; None if the code has nobody for it."""
        assert isinstance(self._root, BaseNode)
        return self._policies.reconciler(self._root, intent)

    def artifacts_at(
        self,
        before: Payload | None,
        execution: Execution,
        steps: Sequence[StepDocument],
        records: Sequence[Record],
    ) -> Payload | None:
        """The artifact versions inside an execution: those at its start (``before``), and what
        its committed steps and the records of the open one added."""
        return artifacts.versions_at(before, execution, steps, records)

    # ---------------------------------------------------------------- payloads

    def message_payload(
        self,
        message: object,
        state_delta: Mapping[str, Any] | None = None,
        run_config: Any = None,
    ) -> Payload:
        """The input of an execution.

        Raises:
            ConfigError: the message is empty, or neither text nor a ``types.Content``.
            NotStorable: a value in it cannot be recorded.
        """
        return codec.encode(
            {
                "message": stored.content_to_data(_content(message)),
                "state_delta": dict(state_delta or {}),
                "run_config": run_config,
            },
            where="input",
        )

    def decode_events(
        self, execution: Execution, steps: Iterable[StepDocument]
    ) -> tuple[Event, ...]:
        """The committed events of an execution's steps, fresh objects."""
        return tuple(event for step in steps for event in stored.decode_step(execution, step))


def _content(message: object) -> types.Content:
    remedy = "Send text, or a types.Content with at least one part."
    if isinstance(message, str):
        if not message.strip():
            raise ConfigError("message", "is empty", remedy)
        return types.Content(role="user", parts=[types.Part(text=message)])
    if not isinstance(message, types.Content):
        raise ConfigError("message", f"got {type(message).__name__}", remedy)
    if not message.parts:
        raise ConfigError("message", "has no parts", remedy)
    if any(part.function_call for part in message.parts):
        raise ConfigError("message", "a user message cannot contain function calls", remedy)
    return message if message.role == "user" else types.Content(role="user", parts=message.parts)
