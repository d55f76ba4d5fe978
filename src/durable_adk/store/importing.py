"""Sessions that were made elsewhere: inserted whole, and not to be used before they are.

The session comes first, marked. While the mark stands ``begin`` refuses the session, so that no
turn goes on from a part of its past. Then come the turns, under keys that follow from what is
imported, so that whoever does it again inserts the same. The last write takes the mark off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from durable_adk.model.exchange import spare_id
from durable_adk.model.execution import Execution, SessionRecord, StepDocument, Turn
from durable_adk.model.identity import SessionKey, execution_key
from durable_adk.model.store_results import Write
from durable_adk.store import filters, session_filters
from durable_adk.store.core import (
    EXECUTIONS,
    INPUT_INLINE,
    SESSIONS,
    STEPS,
    Session,
    contended,
)
from durable_adk.store.documents import SCHEMA_VERSION, Doc, error_document, ref_document
from durable_adk.store.errors import Unsettled
from durable_adk.store.payloads import Envelope, part_nonce
from durable_adk.store.records import STEP_PAYLOADS, step_fields
from durable_adk.store.session_documents import SESSION_PAYLOADS, session_fields
from durable_adk.store.sessions import Sessions
from durable_adk.store.unfinished import TURNS_AT_ONCE

_CHARACTERS_AT_ONCE: Final = 2 * 1024 * 1024
"""Of payloads in one insert: below MongoDB's limit, and done within the timeout."""
_TRIES: Final = 10


class Importing(Sessions):
    """Inserts of what has happened elsewhere, and ``begin``, which waits for its end."""

    async def begin_import(self, session: SessionRecord) -> SessionRecord:
        """Insert a session as one that is being imported; the first insert wins."""
        core, imported = self._core, session.imported
        if imported is None:
            raise ValueError("session.imported is missing")
        stored: dict[str, Envelope] = {}
        for name in SESSION_PAYLOADS:
            text = getattr(session, name)
            if text is not None:
                nonce = part_nonce(imported.digest, name)
                stored[name] = await core.store(session.key, nonce, text)
        own = {"own": imported.own} if imported.own else {}
        mark = {"import": {"digest": imported.digest, "whole": False, **own}}
        fields = session_fields(session, stored, None, imported.digest[:16]) | mark
        times = {"created_at": session.created_at}

        async def put(driver_session: Session) -> Doc | None:
            return await core.upsert_one(
                driver_session, SESSIONS, filters.absent(session.key), filters.whole(fields, times)
            )

        async def settle(driver_session: Session) -> Doc:
            doc = await core.find_one(driver_session, SESSIONS, filters.by_id(session.key))
            if doc is None:
                raise Unsettled
            return doc

        return await self._session_of(await core.write(Write.SESSION, put, settle))

    async def finish_import(self, key: SessionKey, digest: str) -> None:
        """Take the mark off: from now on it is a session like any other."""
        core = self._core

        async def put(session: Session) -> bool:
            await core.update_one(
                session,
                SESSIONS,
                session_filters.imported_as(key, digest),
                session_filters.IMPORTED,
            )
            return True

        async def settle(_: Session) -> bool:
            return True

        await core.write(Write.SESSION, put, settle)

    async def import_turns(self, turns: Sequence[Turn]) -> None:
        """Insert finished turns of a session that is being imported, with their steps."""
        for batch in _batches(turns):
            steps = [await self._step(step) for turn in batch for step in turn.steps]
            await self._insert(Write.STEP, STEPS, steps)
            await self._insert_executions([turn.execution for turn in batch])

    async def _insert_executions(self, executions: Sequence[Execution]) -> None:
        for _ in range(_TRIES):
            missing, taken = await self._missing(executions)
            if not missing:
                return
            docs = [await self._execution(one, is_free=one.key not in taken) for one in missing]
            await self._insert(Write.BEGIN, EXECUTIONS, docs)
        raise contended(f"session {executions[0].session_id!r}")

    async def _missing(
        self, executions: Sequence[Execution]
    ) -> tuple[list[Execution], frozenset[str]]:
        """Those that are not there yet, and which of their keys other sessions have."""
        core, first, last = self._core, executions[0], executions[-1]

        async def once(session: Session) -> tuple[list[Execution], frozenset[str]]:
            found = session_filters.turns_between(first.session_key, first.turn - 1, last.turn + 1)
            there = await core.find(session, EXECUTIONS, found, fields={"turn": 1})
            known = {doc["turn"] for doc in there}
            missing = [one for one in executions if one.turn not in known]
            keys = filters.by_ids([one.key for one in missing])
            taken = await core.find(session, EXECUTIONS, keys, fields={"_id": 1})
            return missing, frozenset(doc["_id"] for doc in taken)

        return await core.read(f"session {first.session_id!r}", once)

    async def _step(self, step: StepDocument) -> Doc:
        stored: dict[str, Envelope] = {}
        for name in STEP_PAYLOADS:
            text = getattr(step, name)
            if text is not None:
                stored[name] = await self._core.store(step.run, part_nonce(step.nonce, name), text)
        return step_fields(step, stored)

    async def _execution(self, execution: Execution, *, is_free: bool) -> Doc:
        """The document of a finished execution, under its own id or under its spare one."""
        core, run = self._core, execution.run
        execution_id = execution.execution_id if is_free else spare_id(run)
        assert execution.last_step is not None
        doc: Doc = {
            "_id": execution_key(execution.tenant, execution_id),
            "v": SCHEMA_VERSION,
            "eid": execution_id,
            **filters.of_tenant(execution.tenant),
            "user": execution.user_id,
            "session": execution.session_id,
            "sk": execution.session_key,
            "turn": execution.turn,
            "run": run,
            "invocation_id": execution.invocation_id,
            "input": await core.store(
                run, part_nonce(run, "input"), execution.input, inline_up_to=INPUT_INLINE
            ),
            "input_digest": execution.input_digest,
            "status": execution.status.value,
            "active": False,
            "token": execution.token,
            "claim": None,
            "attempt": execution.attempt,
            "step": execution.step,
            "last_step": ref_document(execution.last_step),
            "wake_at": execution.wake_at,
            "failures": 0,
            "waiting": False,
            "version": execution.version,
            "error": error_document(execution.error),
            "created_at": execution.created_at,
            "ended_at": execution.ended_at,
            "imported": True,
            "w": run[:16],
        }
        if execution.result is not None:
            doc["result"] = await core.store(
                run, part_nonce(run, "result"), execution.result, inline_up_to=INPUT_INLINE
            )
        return doc

    async def _insert(self, kind: Write, name: str, docs: Sequence[Doc]) -> None:
        """Insert what is not there yet."""
        core = self._core

        async def put(session: Session) -> bool:
            await core.insert_many(name, docs, ordered=False, session=session)
            return True

        async def settle(_: Session) -> bool:
            return True

        await core.write(kind, put, settle)

    # ------------------------------------------------------------------ begin

    async def _last_turn(self, key: SessionKey) -> Doc | None:
        """The session's last turn; if that came with an import, the import is done."""
        doc = await super()._last_turn(key)
        if doc is not None and doc.get("imported"):
            record = await self.get_session(key)
            if record is not None:
                record.check_whole()
        return doc

    async def _put_session(self, session: SessionRecord, nonce: str) -> Doc:
        """The stored document, whoever inserted it, unless that is an import under way."""
        doc = await super()._put_session(session, nonce)
        if "import" in doc:
            (await self._session_of(doc)).check_whole()
        return doc


def _batches(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    batch: list[Turn] = []
    characters = 0
    for turn in turns:
        size = sum(len(step.events) + len(step.state or "") for step in turn.steps)
        if batch and (len(batch) >= TURNS_AT_ONCE or characters + size > _CHARACTERS_AT_ONCE):
            yield batch
            batch, characters = [], 0
        batch.append(turn)
        characters += size
    if batch:
        yield batch
