"""What an attempt records: outcomes, intents, verdicts and step documents."""

from __future__ import annotations

from collections.abc import Sequence

from durable_adk.errors import LeaseLost
from durable_adk.model.activity import Record
from durable_adk.model.execution import StepDocument
from durable_adk.model.identity import RunId
from durable_adk.model.store_results import Write
from durable_adk.store import filters
from durable_adk.store.core import ACTIVITIES, STEPS, Core, Part, Session
from durable_adk.store.documents import Doc, packed
from durable_adk.store.errors import Unsettled
from durable_adk.store.payloads import Envelope, part_nonce
from durable_adk.store.records import (
    STEP_PAYLOADS,
    record_document,
    record_envelopes,
    record_from,
    step_fields,
)
from durable_adk.store.together import Together


class Recording(Part):
    """Inserts under a run. Each key is one slot: the first insert stays for ever."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._outcomes = Together(self._inserted, timeout=core.link.timeout)

    async def insert_outcomes(
        self, run: RunId, records: Sequence[Record], *, at_once: bool = False
    ) -> Record | None:
        """Insert outcomes in order. None when all are durable, else who holds a slot."""
        insert = self._inserted if at_once else self._outcomes.insert
        core = self._core
        docs = [await self._document(run, record) for record in records]
        if not docs:
            return None
        await core.sending(Write.OUTCOMES)
        rest = docs

        async def once() -> Record | None:
            nonlocal rest
            while rest:
                if await insert(rest):
                    await core.stored(Write.OUTCOMES)
                    return None
                mine, rival = await self._compared(rest)
                rest = rest[mine:]
                if rival is not None:
                    return rival
            return None

        return await core.repeated(Write.OUTCOMES, once)

    async def _inserted(self, docs: Sequence[Doc]) -> bool:
        """Whether one ordered insert stored them all; False at a duplicate."""
        return await self._core.insert_many(ACTIVITIES, docs, ordered=True)

    async def _compared(self, docs: list[Doc]) -> tuple[int, Record | None]:
        """How many from the first on are stored as ours, and a rival's record right after them.

        Raises:
            Unsettled: none is: the duplicate cannot be read by a majority yet.
        """
        core = self._core
        async with core.link.session() as session:
            found = filters.by_ids([doc["_id"] for doc in docs])
            stored = {doc["_id"]: doc for doc in await core.find(session, ACTIVITIES, found)}
            mine = 0
            for doc in docs:
                there = stored.get(doc["_id"])
                if there is None:
                    break
                if there["w"] != doc["w"]:
                    texts = await core.texts(session, record_envelopes(there))
                    return mine, record_from(there, texts)
                mine += 1
        if mine == 0:
            raise Unsettled
        return mine, None

    async def insert_intent(self, run: RunId, record: Record) -> bool:
        """Insert an intent. Whether the stored one is ours."""
        doc = await self._document(run, record)
        return bool((await self._slot_holder(Write.INTENT, doc))["w"] == doc["w"])

    async def insert_verdict(self, run: RunId, record: Record) -> Record:
        """Put a verdict into an outcome slot. What stands there now."""
        holder = await self._slot_holder(Write.VERDICT, await self._document(run, record))
        core = self._core

        async def once(session: Session) -> Record:
            return record_from(holder, await core.texts(session, record_envelopes(holder)))

        return await core.read("a read of a record", once)

    async def _document(self, run: RunId, record: Record) -> Doc:
        body = record.body
        stored: Envelope | None = None
        if body is not None:
            stored = await self._core.store(run, part_nonce(record.nonce, "body"), body)
        return record_document(run, record, stored)

    async def _slot_holder(self, kind: Write, doc: Doc) -> Doc:
        """The document that holds the key of ``doc``: this one, or the one that was first."""
        core = self._core

        async def put(session: Session) -> Doc | None:
            return doc if await core.insert_one(session, ACTIVITIES, doc) else None

        async def settle(session: Session) -> Doc:
            there = await core.find_one(session, ACTIVITIES, filters.by_id(doc["_id"]))
            if there is None:
                raise Unsettled
            return there

        return await core.write(kind, put, settle)

    async def put_step(self, document: StepDocument) -> None:
        """Store a step document under its run, step and token; unreachable until a commit.

        Raises:
            LeaseLost: the key holds a document under another nonce.
        """
        core = self._core
        stored: dict[str, Envelope] = {}
        for name in STEP_PAYLOADS:
            text = getattr(document, name)
            if text is not None:
                nonce = part_nonce(document.nonce, name)
                stored[name] = await core.store(document.run, nonce, text)
        doc = step_fields(document, stored)

        async def put(session: Session) -> Doc | None:
            return doc if await core.insert_one(session, STEPS, doc) else None

        async def settle(session: Session) -> Doc:
            there = await core.find_one(session, STEPS, filters.by_id(doc["_id"]))
            if there is None:
                raise Unsettled
            return there

        if (await core.write(Write.STEP, put, settle))["w"] != packed(document.nonce):
            raise LeaseLost(
                f"step {doc['_id']}", "another owner wrote this step under the same token"
            )
