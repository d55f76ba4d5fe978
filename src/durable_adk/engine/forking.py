"""Forks: a new session that shares the past of another one up to a cut.

A fork is one inserted document. Of whole turns it names the sessions whose turns come first; made
inside an execution it also says what its own first execution goes on with, and that execution is
made from it, idempotently, by whoever touches it first. The source is only read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Sequence

from durable_adk.engine.cuts import (
    ArtifactsAt,
    Asked,
    Cut,
    asked_with,
    at_doubts,
    at_frontier,
    at_record,
    at_sleep,
)
from durable_adk.engine.floors import check_kept, has_its_turns
from durable_adk.engine.ports import Store
from durable_adk.engine.reads import committed_steps
from durable_adk.engine.settled import told_in
from durable_adk.errors import ConfigError, CorruptHistory, InputConflict, NotFound
from durable_adk.model.activity import Payload, Record
from durable_adk.model.execution import (
    FAR,
    Ancestor,
    Execution,
    ForkedExecution,
    NextExecution,
    SessionRecord,
    Status,
)
from durable_adk.model.identity import (
    FencingToken,
    SessionKey,
    Tenant,
    execution_key,
    new_nonce,
    new_run_id,
    session_key,
)
from durable_adk.model.position import split_activity_id
from durable_adk.model.retention import Retained
from durable_adk.model.wait import Frontier, WaitKind, frontier_id

FORKS = "fork-"
"""Begins the ids of executions that a fork begins with: they are looked for among sessions."""

DELETION_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""How long a deletion of the source is waited for: it takes a few writes."""


class Forking:
    """Makes forks, and the executions that forks inside an execution begin with."""

    def __init__(self, store: Store, tenant: Tenant, artifacts_at: ArtifactsAt) -> None:
        self._store = store
        self._tenant = tenant
        self._artifacts_at = artifacts_at

    async def fork(
        self, source: SessionKey, cut: Cut, *, session_id: str, shown: str = ""
    ) -> SessionRecord:
        """Make a fork of a session; with the same id and cut, find the one that was made.

        Returns: its document. The execution of a fork inside an execution is made as well.

        Raises:
            NotFound: no such session, execution or activity; or it is being deleted.
            ConfigError: the cut lies in another session, in what is not finished, or not answered.
            InputConflict: the session id is taken by something else.
        """
        digest = cut.digest(source)
        made = None
        while made is None:
            record = await self.session(source, shown)
            key = session_key(self._tenant, record.user_id, session_id)
            made = await self._store.get_session(key)
            if made is None:
                new = await self._cut(record, cut)
                made = await self._insert(new, key, session_id, digest)
            elif made.cut == digest and not await self._stands(made):
                made = None
        if made.cut != digest:
            raise InputConflict(
                f"session {session_id!r}",
                "is there already, and is no fork at this cut",
                "Use another idempotency_key.",
            )
        if made.awaited is not None and made.awaited.made is not None:
            await self.first_execution(made)
        return made

    async def session(self, key: SessionKey, shown: str = "") -> SessionRecord:
        """A session that can be forked; ``shown`` names it in the error. Raises: NotFound."""
        record = await self._store.get_session(key)
        if record is None or record.is_going:
            raise NotFound(f"session {shown}", "does not exist", "Look at app.sessions.list().")
        record.check_whole()
        return record

    async def _insert(
        self, new: SessionRecord, key: SessionKey, session_id: str, digest: str
    ) -> SessionRecord | None:
        """Insert a fork. Returns: what is stored; None if a turn of its past is gone by now."""
        execution_id = f"{FORKS}{uuid.uuid4()}"
        made = None if new.next is None else new.next.made
        if made is not None and made.frontier is not None:
            frontier = made.frontier
            named = dataclasses.replace(
                frontier,
                id=frontier_id(execution_id, frontier.step),
                waits=tuple(told_in(execution_id, wait) for wait in frontier.waits),
            )
            made = dataclasses.replace(made, frontier=named)
        following = NextExecution(
            key=execution_key(self._tenant, execution_id), execution_id=execution_id, made=made
        )
        record = SessionRecord(
            key=key,
            tenant=new.tenant,
            user_id=new.user_id,
            session_id=session_id,
            state=new.state,
            lineage=new.lineage,
            next=following,
            cut=digest,
            artifacts=new.artifacts,
            retained=Retained(
                floor=new.floor, state=new.retained.state, artifacts=new.retained.artifacts
            ),
        )
        stored = await self._store.create_session(record)
        if stored is None:  # a rival was faster
            stored = await self.session(key)
        return stored if await self._stands(stored) else None

    async def _stands(self, fork: SessionRecord) -> bool:
        """Whether all that a fork stands on stays, now that it is there, whoever inserted it. If
        not, it is removed: nobody was told of it."""
        await self._check_source(fork)
        if await has_its_turns(self._store, fork):
            return True
        await self._store.remove_fork(fork)
        return False

    async def _check_source(self, fork: SessionRecord) -> None:
        """See that the source stays, now that the fork is there, whoever inserted it.

        Whoever deletes looks for forks after setting its mark, and decides by an update that finds
        the mark. It is waited for; a mark that stays is taken away, so that the deletion, if it
        still goes on, begins again and finds the fork.

        Raises:
            NotFound: the source is gone, and so is the fork, which never was whole.
        """
        source = fork.lineage[-1]
        for pause in (*DELETION_PAUSES_S, None):
            found = await self._store.get_session(source.key)
            if found is None or found.is_removed:
                await self._store.remove_fork(fork)
                raise NotFound(f"session {source.session_id!r}", "was deleted")
            if not found.is_going:
                return
            if pause is not None:
                await asyncio.sleep(pause)
        await self._store.clear_mark(source.key)
        await self._check_source(fork)

    # ---------------------------------------------------------------- where to cut

    async def _cut(self, source: SessionRecord, cut: Cut) -> SessionRecord:
        """The document of the fork, but for its own ids."""
        inside = split_activity_id(cut.target)
        if inside is not None:
            execution = await self._own(source, inside[0])
            await self._store.get_execution(execution.key)  # or it cannot be read whole
            return await self._cut_inside(source, execution, inside[1], cut)
        if not cut.target:
            latest = await self._store.latest_execution(source.key)
            upto = source.ground if latest is None else latest.turn - latest.is_active
        else:
            execution = await self._own(source, cut.target)
            if cut.side == "after" and execution.is_active:
                raise ConfigError(
                    f"execution {cut.target!r}",
                    f"is {execution.status.value}, and no whole turn yet",
                    "Fork before it, or at one of its activities or waits.",
                )
            upto = execution.turn - (cut.side == "before")
        check_kept(source, upto, last=upto)
        return _fork_of(source, upto, await self._artifacts(source, upto), None)

    async def turn(self, source: SessionRecord, name: str) -> Execution | None:
        """A turn of a session by its execution id, or by its invocation id where that is another
        one: of a fork made inside an execution, or of an imported turn. Else whatever execution
        has this id. Of one whose content is gone its outline: a cut before it needs no more."""
        found = await self._store.get_outline(execution_key(self._tenant, name))
        if found is not None and found.session_key == source.key:
            return found
        latest = await self._store.latest_execution(source.key)
        if latest is None or (source.imported is None and not (source.next and source.next.made)):
            return found
        if latest.invocation_id == name:
            return latest
        history = await self._store.load_history(source.key, before=latest.turn, max_turns=None)
        own = (t.execution for t in history.turns if t.execution.turn > source.base)
        return next((each for each in own if each.invocation_id == name), found)

    async def _own(self, source: SessionRecord, execution_id: str) -> Execution:
        """An execution of this very session.

        Raises:
            NotFound, ConfigError: there is none, or it belongs to another session.
        """
        found = await self.turn(source, execution_id)
        if found is None:
            raise NotFound(
                f"execution {execution_id!r}",
                "there is no such execution",
                "Cut at the id of an execution, of a wait, or of another activity:"
                " app.executions.activities().",
            )
        if found.session_key != source.key:
            if any(found.session_key == ancestor.key for ancestor in source.lineage):
                raise ConfigError(
                    f"execution {execution_id!r}",
                    f"is a turn of session {found.session_id!r}, which this one was forked from",
                    f"Fork session {found.session_id!r}.",
                )
            raise NotFound(
                f"execution {execution_id!r}", f"is no turn of session {source.session_id!r}"
            )
        return found

    async def _artifacts(self, source: SessionRecord, upto: int) -> Payload | None:
        """The artifact versions after a turn of a session."""
        history = await self._store.load_history(source.key, before=upto + 1, max_turns=1)
        for turn in history.turns:
            if turn.execution.turn > source.base:
                return turn.steps[-1].artifacts
        return source.artifacts if upto > source.floor else source.retained.artifacts

    async def _cut_inside(
        self, source: SessionRecord, execution: Execution, digest: str, cut: Cut
    ) -> SessionRecord:
        steps = await committed_steps(self._store, execution)
        records = await self._store.load_records(
            execution.run, from_step=1, parents=execution.parents
        )
        asked = await self._asked(execution, digest)
        if asked is not None and asked.is_in_doubt:
            made = at_doubts(execution, steps, records, asked, cut)
        elif asked is not None:
            made = at_frontier(execution, steps, asked, cut)
        elif _sleeps_at(execution, records, digest):
            made = at_sleep(execution, steps, records, cut)
        else:
            made = at_record(execution, steps, records, digest, cut)
        end = made.parents[-1]
        kept = [r for r in records if r.step == end.step and end.has(r)]
        upto = execution.turn - 1
        check_kept(source, upto, last=execution.turn)
        artifacts = self._artifacts_at(
            await self._artifacts(source, upto),
            execution,
            [step for step in steps if step.step < end.step],
            kept,
        )
        return _fork_of(source, upto, artifacts, made)

    async def _asked(self, execution: Execution, digest: str) -> Asked | None:
        """The frontier that has a wait, as it is or was; None if there is none."""
        frontier = execution.frontier
        if frontier is not None and frontier.place_of(digest) is not None:
            doubts = [w for w in frontier.waits if w.kind is WaitKind.IN_DOUBT]
            if frontier.sleeps and frontier.place_of(digest) not in range(len(doubts)):
                return None
            answers = dict(frontier.answers)
            if doubts:  # what its timers came to stands behind them: a fork sleeps again
                answers = {p: one for p, one in answers.items() if p < len(doubts)}
            return Asked(frontier.step, tuple(doubts) or frontier.waits, answers)
        for step in range(execution.step, 0, -1):
            run, owner = execution.answers_of(step)
            if owner != execution.execution_id:
                return None
            answered = asked_with(digest, await self._store.load_waits(run, step=step))
            if answered:
                answers = {place: one.answer for place, one in enumerate(answered)}
                return Asked(step, tuple(one.wait for one in answered), answers)
        return None

    # ---------------------------------------------------------------- the first execution

    async def first_of(self, execution_id: str) -> Execution | None:
        """The first execution of a fork by its id, made if it is not there yet; None if there is
        no such fork.

        Raises:
            NotFound: its first message has to come.
        """
        record = await self._store.session_awaiting(execution_key(self._tenant, execution_id))
        if record is None or record.awaited is None:
            return None
        if record.awaited.made is None:
            raise NotFound(
                f"execution {execution_id!r}",
                f"is pending: session {record.session_id!r}, a fork, has had no message",
                f"The next message to session {record.session_id!r} starts it.",
            )
        return await self.first_execution(record)

    async def first_execution(self, record: SessionRecord) -> Execution:
        """The execution that a fork inside an execution begins with. Repeat: yes."""
        following = record.next
        if following is None or following.made is None:
            raise ValueError(f"session {record.session_id!r} was not forked inside an execution")
        there = await self._store.get_execution(following.key)
        if there is not None:
            return there
        made = following.made
        source = await self._store.get_execution(made.source)
        if source is None:
            raise CorruptHistory(
                f"execution {following.execution_id!r}", "what it goes on from is missing"
            )
        frontier = made.frontier
        return await self._store.begin_forked(
            Execution(
                key=following.key,
                execution_id=following.execution_id,
                tenant=record.tenant,
                user_id=record.user_id,
                session_id=record.session_id,
                session_key=record.key,
                turn=record.base + 1,
                run=new_run_id(),
                invocation_id=source.invocation_id,
                input=source.input,
                input_digest=source.input_digest,
                codes=source.codes,
                status=Status.QUEUED if frontier is None else Status.SUSPENDED,
                token=FencingToken(0),
                claim=None,
                attempt=0,
                step=made.step,
                last_step=made.last_step,
                frontier=frontier,
                wake_at=_wake_at(frontier),
                voided=made.voided,
                parents=made.parents,
            ),
            new_nonce(),
        )


def _fork_of(
    source: SessionRecord, upto: int, artifacts: Payload | None, made: ForkedExecution | None
) -> SessionRecord:
    """What the document of a fork takes from its source."""
    ancestor = Ancestor(key=source.key, session_id=source.session_id, upto=upto)
    return SessionRecord(
        key=source.key,
        tenant=source.tenant,
        user_id=source.user_id,
        session_id=source.session_id,
        state=source.state,
        lineage=(*source.lineage, ancestor),
        next=None if made is None else NextExecution(key=made.source, execution_id="", made=made),
        artifacts=artifacts,
        retained=source.retained,
    )


def _sleeps_at(execution: Execution, records: Sequence[Record], digest: str) -> bool:
    """Whether a wait is open inside the open step: a timer, or what was asked beside one."""
    frontier = execution.frontier
    is_asked = frontier is not None and frontier.place_of(digest) is not None
    return is_asked and all(record.digest != digest for record in records)


def _wake_at(frontier: Frontier | None) -> int:
    if frontier is None or not frontier.open:
        return 0
    places = (i for i in range(len(frontier.waits)) if i not in frontier.answers)
    expiries = (frontier.waits[place].expires_at for place in places)
    return min((at for at in expiries if at is not None), default=FAR)
