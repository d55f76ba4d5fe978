"""``app.executions``, ``app.sessions`` and ``app.waits``: what is stored, page by page."""

from __future__ import annotations

import dataclasses
from typing import Any

from durable_adk.adk import usage
from durable_adk.app import checks, show
from durable_adk.app.lifecycle import Lifecycle, Opened
from durable_adk.app.outcome import ExecutionRecord, Outcome, Page, Wait
from durable_adk.app.replay import ReplayReport, report_of, unread_report
from durable_adk.app.waiting import page_of_waits
from durable_adk.engine import answers
from durable_adk.engine.reads import shown_steps
from durable_adk.errors import ConfigError, CorruptHistory, KeyMissing, NotFound
from durable_adk.model.activity import ActivityInfo
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import checked_id, execution_key
from durable_adk.model.store_results import Selection
from durable_adk.model.wait import WaitKind


async def events_of(opened: Opened, execution: Execution) -> tuple[Any, ...]:
    """All committed events of an execution, as ADK's ``Event``."""
    steps = await shown_steps(opened.store, execution)
    return opened.program.decode_events(execution, steps)


async def with_usage(opened: Opened, execution: Execution) -> ExecutionRecord:
    """An execution with what it spent itself, over all its attempts: one read of its records.

    An imported one has no records: what its events report.
    """
    records = await opened.store.load_records(execution.run, from_step=1)
    counted = usage.of_records(records)
    if not counted["model_calls"] and not execution.parents and execution.last_step is not None:
        reports = (event.usage_metadata for event in await events_of(opened, execution))
        counted = usage.of_reports(report for report in reports if report is not None)
    return dataclasses.replace(
        show.record_of(execution), usage=counted, usage_by_model=usage.by_model(records)
    )


class Executions:
    """The executions of this App and namespace."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    async def get(self, execution_id: str) -> ExecutionRecord:
        """One execution, with the tokens that it spent: once for each model call that it
        recorded, whatever attempts replayed; a fork's kept calls are not its own.

        That of a fork which has had no message is ``pending``.

        Raises:
            NotFound: there is none with this id.
        """
        checked = checked_id("execution_id", execution_id)
        opened = await self._lifecycle.opened()
        try:
            execution = await opened.engine.get(checked)
        except NotFound:
            key = execution_key(self._lifecycle.tenant, checked)
            session = await opened.store.session_awaiting(key)
            if session is None or session.awaited is None:
                raise
            return show.pending_record(session, checked)
        return await with_usage(opened, execution)

    async def outcome(self, execution_id: str) -> Outcome:
        """How an execution stands, as ``invoke`` would return it. Nothing runs.

        Its status may be ``running``: then it has what was committed so far.

        Raises:
            NotFound: there is none with this id.
        """
        checked = checked_id("execution_id", execution_id)
        opened = await self._lifecycle.opened()
        execution = await opened.engine.get(checked)
        return show.outcome_of(execution, await events_of(opened, execution))

    async def list(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        status: str | None = None,
        version: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ExecutionRecord]:
        """Executions, newest first.

        One whose content cannot be read here (a key that is not configured, a chunk that is gone,
        a newer schema) is listed with what can be, and its ``error`` says why.

        Args:
            user_id: Only this user's.
            session_id: Only those of this session.
            status: Only those that stand so.
            version: Only those with an attempt under this ``version`` of ``agent.yaml``. No index
                knows: all executions that the other arguments leave are looked at, newest first,
                until the page is full.
            kind: Only those with an open wait of this kind, as for ``waits.list``.
            limit: At most so many, 1 to 1000.
            cursor: Where to go on: ``Page.cursor`` of the page before.
        """
        wanted = None if kind is None else checked_kind(kind).value
        selection = Selection(
            tenant=self._lifecycle.tenant,
            user_id=checks.checked_optional_id("user_id", user_id),
            session_id=checks.checked_optional_id("session_id", session_id),
            status=None if status is None else checked_status(status),
            version=None if version is None else checks.checked_text("version", version),
            limit=checks.checked_limit(limit),
            cursor=None if cursor is None else checks.checked_text("cursor", cursor),
        )
        opened = await self._lifecycle.opened()
        found, following = await opened.store.list_executions(selection)
        kept = [
            execution
            for execution in found
            if wanted is None or any(w.kind == wanted for w in show.waits_of(execution))
        ]
        return Page(tuple(show.record_of(execution) for execution in kept), following)

    async def activities(self, execution_id: str) -> tuple[ActivityInfo, ...]:
        """Every recorded call and wait of an execution, the open step included.

        Raises:
            NotFound: there is no such execution.
        """
        checked = checked_id("execution_id", execution_id)
        opened = await self._lifecycle.opened()
        return tuple(await opened.engine.activities(checked))

    async def events(self, execution_id: str) -> tuple[Any, ...]:
        """All committed events of an execution, as ADK's ``Event``.

        Raises:
            NotFound: there is no such execution.
        """
        checked = checked_id("execution_id", execution_id)
        opened = await self._lifecycle.opened()
        return await events_of(opened, await opened.engine.get(checked))

    async def replay(self, execution_id: str) -> ReplayReport:
        """Whether this App's code still fits a recorded execution, whatever its status.

        For before a deploy, and to see why an execution is stuck. The execution is walked from its
        message over its records: no model, tool, leaf node or ``step()`` body runs, nothing is
        written, and no lease is taken, so that it may run elsewhere meanwhile. As on every later
        attempt workflows, nodes that ran others, plugins and callbacks do run.

        Raises:
            NotFound: there is no such execution.
            ConfigError: there is no root agent.
            Unavailable: MongoDB does not answer.
        """
        checked = checked_id("execution_id", execution_id)
        opened = await self._lifecycle.opened_to_run()
        return report_of(await opened.engine.replay(checked))

    async def replay_all(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        status: str | None = None,
        version: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ReplayReport]:
        """``replay`` for each execution of a page of ``list``, one after the other; of one that
        cannot be read the report has the reason."""
        found = await self.list(
            user_id=user_id,
            session_id=session_id,
            status=status,
            version=version,
            limit=limit,
            cursor=cursor,
        )
        reports = [await self._replayed(record) for record in found]
        return Page(tuple(reports), found.cursor)

    async def _replayed(self, record: ExecutionRecord) -> ReplayReport:
        try:
            return await self.replay(record.id)
        except (CorruptHistory, KeyMissing) as error:  # it must not hide the others
            return unread_report(record, error)

    async def export(self, execution_id: str) -> Any:
        """Reserved."""
        raise checks.not_yet("app.executions.export", "Read activities() and events().")


class Waits:
    """The open waits of this App and namespace: the inbox."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    async def get(self, wait_id: str) -> Wait:
        """One open wait.

        Raises:
            NotFound: there is no such wait, or it is not open any more.
        """
        text, execution_id, _digest = checks.checked_wait_id(wait_id)
        opened = await self._lifecycle.opened()
        try:
            execution = await opened.engine.get(execution_id)
        except NotFound:
            raise NotFound(
                f"wait {text!r}",
                "there is no such wait",
                "List the open ones with app.waits.list().",
            ) from None
        for request in answers.open_waits(execution):
            if execution.status is Status.SUSPENDED and answers.wait_id(execution, request) == text:
                return show.wait_of(execution, request)
        raise NotFound(
            f"wait {text!r}",
            f"is not open; its execution is {execution.status.value}",
            "List the open ones with app.waits.list().",
        )

    async def list(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Wait]:
        """Open waits, oldest first; those of one frontier in its order. A page never has waits of
        an execution from before and after it was answered. Those under an encryption key that is
        not configured here are left out: ``executions.list`` names such executions.

        Args:
            user_id: Only this user's.
            session_id: Only those of this session.
            kind: Only ``adk_request_input`` (questions, and tools that run long), only
                ``adk_request_confirmation``, ``adk_request_credential``, ``in_doubt`` or ``timer``.
            limit: At most so many, 1 to 1000.
            cursor: Where to go on: ``Page.cursor`` of the page before.
        """
        selection = Selection(
            tenant=self._lifecycle.tenant,
            user_id=checks.checked_optional_id("user_id", user_id),
            session_id=checks.checked_optional_id("session_id", session_id),
            kind=None if kind is None else checked_kind(kind).value,
            limit=checks.checked_limit(limit),
        )
        place = None if cursor is None else checks.checked_text("cursor", cursor)
        opened = await self._lifecycle.opened()
        return await page_of_waits(opened.store, selection, place)

    def watch(self, **_filters: object) -> Any:
        """Reserved: an async iterator of new waits."""
        raise checks.not_yet("app.waits.watch", "Call app.waits.list() again.")


def checked_status(status: object) -> Status:
    try:
        return Status(status)
    except ValueError:
        known = ", ".join(each.value for each in Status)
        raise ConfigError("status", f"{status!r} is none", f"Use one of: {known}.") from None


def checked_kind(kind: object) -> WaitKind:
    for known in WaitKind:
        if kind == known.value:
            return known
    remedy = f"Use one of: {', '.join(known.value for known in WaitKind)}."
    raise ConfigError("kind", f"there are no waits of kind {kind!r}", remedy)
