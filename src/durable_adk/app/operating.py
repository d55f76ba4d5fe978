"""What an App does with executions that exist: look, answer one wait, end, retry, recover."""

from __future__ import annotations

from typing import Any

from durable_adk.app import checks, retaining, show
from durable_adk.app.building import Building
from durable_adk.app.lifecycle import Lifecycle, Opened
from durable_adk.app.outcome import AnswerReceipt, ExecutionRecord, Outcome, Pruned
from durable_adk.app.reads import Executions, Waits, events_of
from durable_adk.app.recovered import recovered
from durable_adk.app.sessions import Sessions
from durable_adk.app.work import AppWorker
from durable_adk.errors import Unavailable
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import checked_id
from durable_adk.model.store_results import Reencrypted


class Operating(Building):
    """The part of ``App`` that begins nothing."""

    _lifecycle: Lifecycle

    @property
    def executions(self) -> Executions:
        """The executions of this App: get, outcome, list, activities, events, replay,
        replay_all."""
        return Executions(self._lifecycle)

    @property
    def sessions(self) -> Sessions:
        """The conversations of this App: create, get, list, events, turns, tree, fork, prune,
        delete, delete_user, export, import_, import_from."""
        return Sessions(self._lifecycle)

    @property
    def waits(self) -> Waits:
        """The inbox, what is waited for: get, list. Answer with ``answer`` or ``resume``."""
        return Waits(self._lifecycle)

    async def answer(self, wait_id: str, value: Any, *, by: str | None = None) -> AnswerReceipt:
        """Store one answer. Nothing runs: the last one makes the execution due.

        A worker, ``recover()`` or ``resume`` then goes on with it. Needs no root agent. ``by`` has
        up to 1,000 characters, the ``reason`` of ``cancel``, ``give_up`` and ``retry`` 10,000.

        Raises:
            NotFound: there is no such wait.
            InvalidAnswer, AnswerConflict, WaitClosed: as for ``resume``.
        """
        self._lifecycle.check_enabled()
        text, _execution_id, _digest = checks.checked_wait_id(wait_id)
        who = checks.checked_by(by)
        opened = await self._lifecycle.opened()
        receipt = await opened.engine.answer(text, value, by=who)
        return AnswerReceipt(
            execution_id=receipt.execution.execution_id,
            open=receipt.open,
            runnable=receipt.runnable,
        )

    async def cancel(self, execution_id: str, reason: str = "") -> ExecutionRecord:
        """End an execution as ``cancelled``; what runs is asked to stop.

        Returns: how it stands then. One that has ended stays as it is, and nothing is raised:
            look at ``status``. ``running`` means that another process has been asked to stop it.

        Raises:
            NotFound: there is no such execution.
            ConfigError: there is no root agent; it closes the turn.
        """
        checked, why = self._named(execution_id, reason)
        opened = await self._lifecycle.opened_to_run()
        return show.record_of(await opened.engine.cancel(checked, why))

    async def retry(self, execution_id: str, reason: str = "") -> ExecutionRecord:
        """Make a ``stuck`` or ``queued`` execution due at once, with all its attempts again.

        Nothing runs: a worker or ``recover()`` goes on with it. Needs no root agent.

        Returns: how it stands then. Any other one stays as it is, and nothing is raised: look
            at ``status``, which is ``queued`` where there was something to retry.

        Raises:
            NotFound: there is no such execution.
        """
        checked, why = self._named(execution_id, reason)
        opened = await self._lifecycle.opened()
        return show.record_of(await opened.engine.retry(checked, why))

    async def give_up(self, execution_id: str, reason: str = "") -> ExecutionRecord:
        """End an execution as ``failed`` without running it again.

        Returns: how it stands then. One that has ended stays as it is, and nothing is raised:
            look at ``status``. One that another process runs is asked to end, and is
            ``cancelled`` then. One of which something is gone (``CorruptHistory``) is ended
            without it, also by ``cancel``: its ``error`` names that, and nothing can go on in its
            session any more: a message there is stuck, and its error names the ``sessions.fork``
            (``before=`` that execution) in which one can go on.

        Raises:
            NotFound: there is no such execution.
            ConfigError: there is no root agent; it closes the turn.
        """
        checked, why = self._named(execution_id, reason)
        opened = await self._lifecycle.opened_to_run()
        return show.record_of(await opened.engine.give_up(checked, why))

    def _named(self, execution_id: object, reason: object) -> tuple[str, str]:
        self._lifecycle.check_enabled()
        why = checks.checked_short("reason", reason, checks.MAX_REASON)
        return checked_id("execution_id", execution_id), why

    async def recover(self, limit: int = 100) -> tuple[Outcome, ...]:
        """Go on once with everything that is due: crashed, submitted, answered, backed off.

        Returns: where each was left. One whose events cannot be read is among them without events,
            and its ``error`` says why; not one that was deleted meanwhile, nor what was not claimed
            yet when this App began to close.

        Raises:
            Unavailable: MongoDB does not answer, or the App was closed meanwhile.
        """
        checks.checked_limit(limit)
        opened = await self._lifecycle.opened_to_run()
        executions = await opened.engine.recover(limit)
        # One that somebody else went on with meanwhile is theirs to report.
        own = [one for one in executions if one.status is not Status.RUNNING]
        return await recovered(opened, own)

    async def retain(self) -> Pruned:
        """Look once at every session, and remove what ``retention`` in ``agent.yaml`` says, as
        ``sessions.prune`` does. A worker does it by itself. Needs no root agent.

        Raises:
            ConfigError: neither ``retention.turns`` nor ``retention.age`` is set.
        """
        self._lifecycle.check_enabled()
        return await retaining.retain(self._lifecycle)

    async def reencrypt(self) -> Reencrypted:
        """Write all that this App has stored again under the first of ``encryption.keys``: what is
        plain, and what is under another key. Afterwards the other keys can be removed.

        Safe beside workers that have all the keys, and the same first one. Repeat: yes; cut off,
        the next call goes on. Needs no root agent.

        Raises:
            ConfigError: no keys are configured; ``KeyMissing``: something is under another one.
            CorruptHistory: a stored value was changed or moved.
        """
        opened = await self._lifecycle.opened()
        return await opened.store.reencrypt(self._lifecycle.tenant)

    def worker(self) -> AppWorker:
        """A worker of this App: ``await app.worker().run()`` keeps recovering until stopped."""
        return AppWorker(self._lifecycle)

    async def export(self, *_what: object, **_how: object) -> Any:
        """Reserved."""
        raise checks.not_yet("app.export", "Read app.executions and app.sessions.")

    async def import_(self, *_what: object, **_how: object) -> Any:
        """Reserved."""
        raise checks.not_yet("app.import_", "Point the App at the database that holds the data.")

    async def _outcome(self, opened: Opened, execution: Execution) -> Outcome:
        if execution.status is Status.RUNNING:  # this App was closed while it waited
            raise Unavailable(
                f"execution {execution.execution_id!r}",
                "goes on in another process",
                "The same call again waits for its outcome.",
            )
        return show.outcome_of(execution, await events_of(opened, execution))
