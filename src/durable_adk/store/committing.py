"""The commit points after a claim: frontier, answers, continue, end, attempt failed.

Each is one conditional update of the execution document. Where nothing matched, the document
is read back in the same session: my own write, made by a try whose reply was lost, or a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from durable_adk.errors import CorruptHistory, LeaseLost
from durable_adk.model.activity import Payload
from durable_adk.model.execution import (
    FAR,
    Execution,
    Lease,
    Status,
    StepDocument,
    StoredError,
)
from durable_adk.model.identity import ExecutionKey
from durable_adk.model.store_results import Write
from durable_adk.model.wait import BY_EXPIRY, AnsweredWait, Frontier, StoredAnswer
from durable_adk.store import doubt_filters, expiry_filters, filters
from durable_adk.store.core import (
    ACTIVITIES,
    EXECUTIONS,
    INPUT_INLINE,
    Part,
    Session,
)
from durable_adk.store.documents import (
    Doc,
    answer_document,
    error_document,
    ref_document,
)
from durable_adk.store.errors import Unsettled
from durable_adk.store.frontiers import inline_limit, stored_answer, stored_frontier
from durable_adk.store.payloads import is_large, part_nonce
from durable_adk.store.records import (
    record_document,
    record_key,
    wait_record,
    wait_record_document,
    wait_slot,
)


class Committing(Part):
    """Updates of the execution document under the fence."""

    async def commit_frontier(
        self, lease: Lease, *, step: StepDocument, frontier: Frontier
    ) -> None:
        """Suspend with a frontier, whole. Raises: LeaseLost."""
        stored = await stored_frontier(self._core, step.run, frontier, step.nonce)
        now = self._core.clock.now()
        times = expiry_filters.expiries(frontier, now)
        update = filters.suspended(
            lease,
            now,
            frontier=expiry_filters.timed(stored, times),
            wake_at=expiry_filters.wakes_at(frontier, times),
            scopes_due=bool(step.stamp),
        )

        def is_mine(doc: Doc) -> bool:
            found, last = doc.get("frontier"), doc.get("last_step") or {}
            if found is not None and found["id"] == frontier.id:
                return bool(found["token"] == lease.token)
            return (last.get("n"), last.get("token")) == (step.step, lease.token)

        await self._commit(
            Write.FRONTIER, lease, filters.held_in(lease, step.step), update, is_mine
        )

    async def commit_end(
        self,
        lease: Lease,
        *,
        step: StepDocument,
        status: Status,
        result: Payload | None,
        error: StoredError | None,
    ) -> None:
        """End with a status; ``last_step`` = step. Raises: LeaseLost."""
        fields: dict[str, Any] = {"error": error_document(error)}
        if result is not None:
            fields["result"] = await self._core.store(
                step.run, part_nonce(step.nonce, "result"), result, inline_up_to=INPUT_INLINE
            )
        if step.stamp:
            fields["scopes_due"] = True
        last_step = ref_document(step.ref)
        update = filters.ended(
            lease, self._core.clock.now(), status=status, last_step=last_step, fields=fields
        )

        def is_mine(doc: Doc) -> bool:
            return doc["status"] == status.value and doc.get("last_step") == last_step

        await self._commit(Write.END, lease, filters.held_in(lease, step.step), update, is_mine)

    async def attempt_failed(
        self,
        lease: Lease,
        *,
        status: Status,
        error: StoredError,
        failures: int,
        voided: Sequence[str],
        backoff_ms: int,
        is_readable: bool = True,
    ) -> None:
        """Give the attempt up: queued after a back-off, or stuck. Raises: LeaseLost."""
        now = self._core.clock.now()
        update = filters.attempt_failed(
            lease,
            status=status,
            wake_at=(
                expiry_filters.queued_until(now, backoff_ms)
                if status is Status.QUEUED
                else expiry_filters.stuck_until()
                if is_readable
                else FAR
            ),
            voided=voided,
            fields={"error": error_document(error), "failures": failures},
        )

        def is_mine(doc: Doc) -> bool:
            return bool(doc.get("left") == {"token": lease.token, "how": "failed"})

        await self._commit(Write.ATTEMPT_FAILED, lease, filters.held_under(lease), update, is_mine)

    async def commit_continue(
        self, lease: Lease, execution: Execution, answered: Sequence[AnsweredWait]
    ) -> None:
        """Close an answered frontier: wait records first, then one update. Raises: LeaseLost."""
        frontier = execution.frontier
        if frontier is None:
            raise LeaseLost(f"execution {execution.execution_id!r}", "has no frontier to close")
        await self._insert_waits(lease, execution, frontier, answered)
        if frontier.is_in_doubt:
            kept, stored = frontier.without_doubts(), None
            if kept is not None:
                stored = await stored_frontier(self._core, execution.run, kept, lease.claim)
            update = doubt_filters.left(stored)
        else:
            last_step: Doc = {
                "n": frontier.step,
                "token": frontier.step_token,
                "waits": len(frontier.waits),
            }
            update = filters.continued(execution.step, last_step)

        def is_mine(doc: Doc) -> bool:
            held = doc["token"] == lease.token and doc["claim"] == lease.claim
            return bool(held and (doc.get("frontier") or {}).get("id") != frontier.id)

        found = filters.holding_frontier(lease, execution.step, frontier.id)
        await self._commit(Write.CONTINUE, lease, found, update, is_mine)

    async def _commit(
        self,
        kind: Write,
        lease: Lease,
        found: filters.Filter,
        update: Any,
        is_mine: Any,
    ) -> None:
        """One update under the fence; where it did not match, whose write stands there."""
        core = self._core

        async def put(session: Session) -> bool | None:
            return await core.update_one(session, EXECUTIONS, found, update)

        async def settle(session: Session) -> bool:
            doc = await core.find_one(session, EXECUTIONS, filters.by_id(lease.key))
            if doc is None or not is_mine(doc):
                raise LeaseLost(
                    f"execution {doc['eid']!r}" if doc else f"execution {lease.key}",
                    f"token {lease.token} may not commit any more, nothing was written",
                )
            return True

        await core.write(kind, put, settle)

    async def _insert_waits(
        self,
        lease: Lease,
        execution: Execution,
        frontier: Frontier,
        answered: Sequence[AnsweredWait],
    ) -> None:
        """Insert the wait records. Whoever does it, their content is the frontier's."""
        core, run = self._core, execution.run
        docs = []
        for place, one in enumerate(answered):
            record = wait_record(
                one,
                frontier_id=frontier.id,
                step=frontier.step,
                token=lease.token,
                attempt=execution.attempt,
            )
            body = await stored_answer(core, run, frontier.id, place, one.answer)
            content = await core.store(run, part_nonce(record.nonce, "content"), one.wait.content)
            base = record_document(run, record, body)
            docs.append(wait_record_document(base, one, content, place, len(answered)))
        if not docs:
            return
        ids = [doc["_id"] for doc in docs]

        async def put(session: Session) -> bool | None:
            inserted = await core.insert_many(ACTIVITIES, docs, ordered=False, session=session)
            return inserted or None

        async def settle(session: Session) -> bool:
            there = await core.find(session, ACTIVITIES, filters.by_ids(ids), fields={"_id": 1})
            if len(there) < len(ids):
                raise Unsettled
            return True

        await core.write(Write.WAITS, put, settle)

    # ------------------------------------------------------------------ answers

    async def put_answers(
        self, key: ExecutionKey, frontier: Frontier, answers: Mapping[int, StoredAnswer]
    ) -> bool:
        """Store answers of open places in one update, guarded by ``frontier.rev``.

        An answer by ``expiry`` is accepted only after its wait has expired, every other only
        before.
        """
        core = self._core
        if wrong := [i for i in answers if i in frontier.answers or i >= len(frontier.waits)]:
            raise ValueError(f"places {wrong} are not open in frontier {frontier.id}")
        if not answers:
            return False
        for answer in answers.values():
            if answer.by != BY_EXPIRY:  # that stands in the frontier already
                core.check_size("answer", answer.value)
        run, limit = "", inline_limit((*frontier.answers.values(), *answers.values()))
        large = min(limit, core.spill_above)
        if any(is_large(answer.value, large) for answer in answers.values()):
            run = await self._run_of(key)
        docs = {
            place: answer_document(
                answer,
                await stored_answer(core, run, frontier.id, place, answer, inline_up_to=limit),
            )
            for place, answer in answers.items()
        }
        expired = [i for i in answers if answers[i].by == BY_EXPIRY]
        others = [i for i in answers if i not in expired]
        timely = [i for i in others if frontier.waits[i].expires_at is not None]
        left = frontier.open - len(answers)
        update = filters.answered(
            docs,
            rev=frontier.rev,
            left=left,
            wake_at=_next_expiry(frontier, {**frontier.answers, **answers}) if left else 0,
        )

        async def put(session: Session) -> bool | None:
            now = core.clock.now()
            found = filters.answerable(
                key,
                frontier.id,
                frontier.rev,
                now,
                timely=timely,
                expired=expired,
                terms=expiry_filters.open_in_time(frontier, now) if others else (),
            )
            return await core.update_one(session, EXECUTIONS, found, update)

        async def settle(session: Session) -> bool:
            doc = await core.find_one(session, EXECUTIONS, filters.by_id(key))
            if doc is None:
                return False
            stored = doc.get("frontier")
            if stored is not None and stored["id"] == frontier.id:
                there = stored["answers"]
                return all(_same(there.get(str(place)), one) for place, one in docs.items())
            return await self._continued_with(session, doc["run"], frontier, docs)

        return await core.write(Write.ANSWER, put, settle)

    async def _continued_with(
        self, session: Session, run: str, frontier: Frontier, answers: Mapping[int, Doc]
    ) -> bool:
        """Whether these answers have become records already: somebody was quick to continue."""
        keys = {
            record_key(run, wait_slot(frontier.step, frontier.waits[place].digest)): answer
            for place, answer in answers.items()
        }
        found = await self._core.find(session, ACTIVITIES, filters.by_ids(list(keys)))
        there = {doc["_id"]: doc.get("answer") for doc in found}
        return all(_same(there.get(key), answer) for key, answer in keys.items())

    async def _run_of(self, key: ExecutionKey) -> str:
        core = self._core

        async def once(session: Session) -> str:
            docs = await core.find(session, EXECUTIONS, filters.by_id(key), fields={"run": 1})
            if not docs:
                raise CorruptHistory(f"execution {key}", "is missing")
            return str(docs[0]["run"])

        return await core.read("a read of an execution", once)


def _same(stored: Doc | None, answer: Doc) -> bool:
    """Compared by digest: the stored bytes may be compressed in another way."""
    if stored is None:
        return False
    return all(stored.get(field) == answer.get(field) for field in ("digest", "by", "at"))


def _next_expiry(frontier: Frontier, answers: Mapping[int, object]) -> int:
    """When the first open wait expires, or the execution's deadline is, or ``FAR``."""
    expiries = [w.expires_at for place, w in enumerate(frontier.waits) if place not in answers]
    return min(at for at in (*expiries, frontier.deadline, FAR) if at is not None)
