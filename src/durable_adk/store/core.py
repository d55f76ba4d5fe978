"""How every read and every write is done: bounded, repeated while unknown, translated.

``Core`` is what the parts of the store share. A write is put, and while nobody knows whether
it happened it is put again, the same; then it is settled by reading back in the same session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from durable_adk.errors import Unavailable
from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.store_results import Write
from durable_adk.store import filters
from durable_adk.store.clock import Clock
from durable_adk.store.drivers import Link
from durable_adk.store.errors import (
    LostReply,
    Unsettled,
    Verdict,
    is_transient,
    may_be_done,
    translated,
    verdict,
)
from durable_adk.store.payloads import (
    BYTES_AT_ONCE,
    COMPRESS_ABOVE,
    Envelope,
    Texts,
    batches,
    inline,
    is_large,
    spilled,
)
from durable_adk.store.sealing import Sealing

R = TypeVar("R")
Session = Any
Put = Callable[[Session], Awaitable[R | None]]
Settle = Callable[[Session], Awaitable[R]]

EXECUTIONS = "executions"
ACTIVITIES = "activities"
STEPS = "steps"
SESSIONS = "sessions"
SCOPES = "scopes"
PAYLOADS = "payloads"
ARTIFACTS = "artifacts"

INPUT_INLINE = 64 * 1024
"""Inputs and results above this many bytes are chunks: renewals rewrite the document."""
ANSWER_INLINE = 16 * 1024
FRONTIER_INLINE = 256 * 1024
"""The contents of all waits of a frontier together."""


class Faults(Protocol):
    """The shape that the store needs of ``engine.ports.Faults``."""

    def before(self, write: Write) -> Awaitable[None] | None: ...

    def after(self, write: Write) -> Awaitable[bool] | bool: ...


class NoFaults:
    """What production runs with."""

    def before(self, write: Write) -> None:
        pass

    def after(self, write: Write) -> bool:
        return False


async def persistently(
    what: str,
    once: Callable[[], Awaitable[R]],
    *,
    deadline_s: float,
    is_write: bool,
    timeout: Callable[[], AbstractContextManager[None]],
    hosts: str,
) -> R:
    """Do ``once`` until it is answered or the deadline has passed.

    The first try runs bare: it is the hot path.
    """
    unknown = False

    async def bounded() -> R:
        nonlocal unknown
        try:
            with timeout():
                return await once()
        except Exception as error:  # read by ``verdict``; what it does not know goes on up
            unknown = unknown or (is_write and may_be_done(error))
            raise

    try:
        try:
            return await bounded()
        except Exception as error:  # as above
            if not is_transient(error):
                raise
        return await AsyncRetrying(
            stop=stop_after_delay(deadline_s),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            retry=retry_if_exception(_is_transient),
            reraise=True,
        )(bounded)
    except Exception as error:  # as above
        translation = translated(error, what, unknown=unknown, hosts=hosts)
        if translation is None:
            raise
        raise translation from error


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, Exception) and is_transient(error)


class Core:
    """The database, the clock and the fault points, shared by the parts of the store."""

    def __init__(
        self,
        link: Link,
        *,
        clock: Clock,
        faults: Faults,
        deadline_ms: int,
        spill_above: int,
        compress_above: int | None = COMPRESS_ABOVE,
        payload_max: int | None = None,
        sealing: Sealing | None = None,
    ) -> None:
        self.link = link
        self.sealing = sealing or Sealing()
        self._compress_above = compress_above
        self._payload_max = payload_max
        self.clock = clock
        self.faults = faults
        self.spill_above = spill_above
        self._deadline_s = deadline_ms / 1000

    def collection(self, name: str) -> Any:
        return self.link.collection(name)

    async def opening(
        self,
        once: Callable[[], Awaitable[R]],
        *,
        timeout: Callable[[], AbstractContextManager[None]],
        deadline_s: float = 0,
    ) -> R:
        """A step of opening the store: tried twice at least, not until the deadline of a write."""
        return await persistently(
            "open",
            once,
            deadline_s=deadline_s,
            is_write=False,
            timeout=timeout,
            hosts=self.link.hosts,
        )

    async def read(self, what: str, once: Callable[[Session], Awaitable[R]]) -> R:
        """Read, seeing at least what every earlier write in a session here has done.

        Raises: Unavailable: no answer until the deadline.
        """

        async def in_session() -> R:
            async with self.link.session() as session:
                return await once(session)

        return await persistently(
            what,
            in_session,
            deadline_s=self._deadline_s,
            is_write=False,
            timeout=self.link.timeout,
            hosts=self.link.hosts,
        )

    async def write(self, kind: Write, put: Put[R], settle: Settle[R]) -> R:
        """Put until acknowledged; where the put was not applied, settle.

        Args:
            kind: For fault points and messages.
            put: Sends the write. None: it was not applied (nothing matched, or a duplicate),
                which after a lost reply may mean that it had been applied before.
            settle: Reads back, in the session of the put, whose write stands there. It may
                raise ``Unsettled`` to have the write put again.
        """
        await self.sending(kind)

        async def in_session() -> R:
            async with self.link.session() as session:
                done = await put(session)
                if done is None:
                    return await settle(session)
                await self.stored(kind)
                return done

        return await self.repeated(kind, in_session)

    async def sending(self, kind: Write) -> None:
        """The fault point before a write: a test may hold it while others go on."""
        pause = self.faults.before(kind)
        if pause is not None:
            await pause

    async def stored(self, kind: Write) -> None:
        """The fault point after a write: a test may end the process here, or lose the reply."""
        lost = self.faults.after(kind)
        if lost if isinstance(lost, bool) else await lost:
            raise LostReply

    async def repeated(
        self, kind: Write, once: Callable[[], Awaitable[R]], *, deadline_s: float | None = None
    ) -> R:
        """Repeat a write that settles itself. ``write`` is this with a session around it.

        Raises:
            WriteUnknown: not acknowledged until the deadline.
            Unavailable: no server took it until the deadline.
        """
        return await persistently(
            f"write ({kind.value})",
            once,
            deadline_s=self._deadline_s if deadline_s is None else deadline_s,
            is_write=True,
            timeout=self.link.timeout,
            hosts=self.link.hosts,
        )

    async def find(
        self,
        session: Session,
        name: str,
        found: filters.Filter,
        *,
        sort: list[tuple[str, int]] | None = None,
        limit: int = 0,
        fields: dict[str, int] | None = None,
    ) -> list[dict[str, Any]]:
        """All documents that match, in one read."""
        cursor = self.collection(name).find(found, fields, session=session)
        if sort is not None:
            cursor = cursor.sort(sort)
        if limit:
            cursor = cursor.limit(limit)
        docs: list[dict[str, Any]] = await cursor.to_list(None)
        return [self.sealing.opened(name, doc) for doc in docs]

    async def find_one(
        self, session: Session, name: str, found: filters.Filter
    ) -> dict[str, Any] | None:
        doc: dict[str, Any] | None = await self.collection(name).find_one(found, session=session)
        return self._opened(name, doc)

    def _opened(self, name: str, doc: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if doc is None else self.sealing.opened(name, doc)

    # ------------------------------------------------------------------ payloads

    def check_size(self, where: str, text: Payload | None) -> None:
        """Refuse what a caller gave, before anything of it is stored.

        Raises:
            NotStorable: it is larger than ``payload.max``.
        """
        if text is not None:
            codec.check_size(text, self._payload_max, where=where)

    async def store(
        self, owner: str, nonce: str, text: Payload, *, inline_up_to: int | None = None
    ) -> Envelope:
        """The envelope of a payload; its chunks, if it is large, are durable on return.

        Repeat: with the same owner, nonce and text, yes.
        """
        limit = self.spill_above if inline_up_to is None else min(inline_up_to, self.spill_above)
        if not is_large(text, limit):
            return inline(text, compress_above=self._compress_above)
        envelope, chunks = spilled(owner, nonce, text, with_digest=self.sealing.is_on)
        for chunk in chunks:  # one by one: each insert stays within its timeout
            await self.insert_own(Write.CHUNK, PAYLOADS, chunk)
        return envelope

    async def insert_own(self, kind: Write, name: str, doc: dict[str, Any]) -> None:
        """Insert a document whose key only we, or somebody with the same content, would use."""

        async def put(session: Session) -> bool | None:
            return await self.insert_one(session, name, doc)

        async def settle(session: Session) -> bool:
            if await self.find_one(session, name, filters.by_id(doc["_id"])) is None:
                raise Unsettled
            return True

        await self.write(kind, put, settle)

    async def insert_one(self, session: Session, name: str, doc: dict[str, Any]) -> bool | None:
        """Insert; None if the key (or a unique value) is taken."""
        doc = self.sealing.document(name, doc)
        try:
            await self.collection(name).insert_one(doc, session=session)
        except Exception as error:  # read by ``verdict``
            if verdict(error) is Verdict.DUPLICATE:
                return None
            raise
        return True

    async def insert_many(
        self,
        name: str,
        docs: Sequence[dict[str, Any]],
        *,
        ordered: bool,
        session: Session = None,
    ) -> bool:
        """Insert; False at a duplicate, which unordered leaves the others inserted."""
        collection = self.collection(name)
        stored = [self.sealing.document(name, doc) for doc in docs]
        options = {} if session is None else {"session": session}
        try:
            if len(stored) == 1:
                await collection.insert_one(stored[0], **options)
            else:
                await collection.insert_many(stored, ordered=ordered, **options)
        except Exception as error:  # read by ``verdict``
            if verdict(error) is Verdict.DUPLICATE:
                return False
            raise
        return True

    async def upsert_one(
        self, session: Session, name: str, found: filters.Filter, update: Any
    ) -> dict[str, Any] | None:
        """The document after an upsert; None if its key (or a unique value) is taken."""
        update = self.sealing.update(name, found["_id"], update)
        try:
            doc: dict[str, Any] | None = await self.collection(name).find_one_and_update(
                found, update, upsert=True, return_document=True, session=session
            )
        except Exception as error:  # read by ``verdict``
            if verdict(error) is Verdict.DUPLICATE:
                return None
            raise
        return self._opened(name, doc)

    async def find_one_and_update(
        self, session: Session, name: str, found: filters.Filter, update: Any
    ) -> dict[str, Any] | None:
        """The document after an update; None if nothing matched."""
        update = self.sealing.update(name, found["_id"], update)
        doc: dict[str, Any] | None = await self.collection(name).find_one_and_update(
            found, update, return_document=True, session=session
        )
        return self._opened(name, doc)

    async def update_one(
        self, session: Session, name: str, found: filters.Filter, update: Any
    ) -> bool | None:
        """Update; None if nothing matched."""
        update = self.sealing.update(name, found["_id"], update)
        result = await self.collection(name).update_one(found, update, session=session)
        return True if result.matched_count else None

    async def texts(self, session: Session, envelopes: Iterable[Envelope | None]) -> Texts:
        """Load the chunks of envelopes; no traffic if there are none."""
        chunks: dict[str, bytes] = {}
        for ids in batches(envelopes, BYTES_AT_ONCE):
            for doc in await self.find(session, PAYLOADS, filters.by_ids(ids)):
                chunks[doc["_id"]] = doc["b"]
        return Texts(chunks)


class Part:
    """A group of the store's methods over one ``Core``."""

    def __init__(self, core: Core) -> None:
        self._core = core


def contended(what: str) -> Unavailable:
    """The answer when others were faster again and again."""
    return Unavailable(what, "others changed it at every try", "Try again.")
