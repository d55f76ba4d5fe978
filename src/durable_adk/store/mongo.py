"""``MongoStore``: opening and closing, and the parts that are the store."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from durable_adk.errors import ConfigError
from durable_adk.model.execution import FAR
from durable_adk.store import filters, indexes
from durable_adk.store.artifacts import Artifacts
from durable_adk.store.checking import Checking
from durable_adk.store.clock import SERVER_NOW, Clock, LocalClock, ServerClock
from durable_adk.store.core import EXECUTIONS, Core, Faults, NoFaults
from durable_adk.store.deleting import Deleting
from durable_adk.store.doubting import Doubting
from durable_adk.store.drivers import Driver, Link
from durable_adk.store.errors import Verdict, verdict
from durable_adk.store.importing import Importing
from durable_adk.store.leases import KeeperLink, Leases
from durable_adk.store.listing import Listing
from durable_adk.store.loading import Loading
from durable_adk.store.payloads import COMPRESS_ABOVE
from durable_adk.store.recording import Recording
from durable_adk.store.reencrypting import Reencrypting
from durable_adk.store.retaining import Retaining
from durable_adk.store.scopes import Scopes
from durable_adk.store.sealing import Sealing
from durable_adk.store.turns import Turns
from durable_adk.store.unread import Unreadable

OLDEST_SERVER: Final = (5, 0)
LEASE_TTL_MS: Final = 30_000
SHORTEST_TIMEOUT_MS: Final = 500
DEADLINE_MS: Final = 30_000
"""For how long an unknown write is repeated, at least; a failover takes about 10 s."""
ELECTION_S = 15.0
"""For how long opening waits for a primary once some member has answered."""

log = logging.getLogger("durable_adk.store")


class MongoStore(
    Importing,
    Leases,
    Loading,
    Recording,
    Doubting,
    Scopes,
    Listing,
    Deleting,
    Artifacts,
    Turns,
    Retaining,
    Checking,
    Reencrypting,
    Unreadable,
):
    """The only spokesman of the database; ``engine.ports.Store`` by shape.

    Attributes:
        clock: What decides leases and expiries here.
        needs_own_loop: Whether ``keeper_link`` may be used on another event loop.
    """

    def __init__(
        self,
        client_or_uri: object,
        *,
        database: str = "durable_adk",
        prefix: str = "durable_",
        clock: Clock | None = None,
        create_indexes: bool = True,
        faults: Faults | None = None,
        lease_ttl_ms: int = LEASE_TTL_MS,
        operation_timeout_ms: int | None = None,
        spill_above: int = 1 << 20,
        compress_above: int | None = COMPRESS_ABOVE,
        payload_max: int | None = None,
        keys: Mapping[str, bytes] | None = None,
        read_plain: bool = True,
    ) -> None:
        """Recognise the client; no traffic.

        Args:
            client_or_uri: A connection string, or a client of PyMongo (asynchronous), Motor or
                mongomock-motor. Only a client made here is closed here.
            database: Its name.
            prefix: Begins the name of every collection.
            clock: Time; the server's by default, this machine's on mongomock.
            create_indexes: Off: open fails, naming what is missing.
            faults: Where tests make the world go wrong.
            lease_ttl_ms: The lease that the store will be used with.
            operation_timeout_ms: Bounds each operation; below a third of the lease, so that a
                renewal can fail and be tried again. By default 30 % of it.
            spill_above: Payloads of more bytes are stored in chunks.
            compress_above: Payloads of more characters are compressed; None: none is.
            payload_max: Messages, answers, states and artifacts of more bytes are refused; None for
                any size. What a body leaves was refused as its failure.
            keys: What content is encrypted with, 32 bytes each, by id; the first one encrypts,
                every one decrypts. None: nothing is encrypted.
            read_plain: Off: content that is not encrypted is refused.

        Raises:
            ConfigError: no client that can be used, or a name that MongoDB does not take.
        """
        timeout_ms = operation_timeout_ms or max(SHORTEST_TIMEOUT_MS, lease_ttl_ms * 3 // 10)
        if operation_timeout_ms is not None and operation_timeout_ms * 3 >= lease_ttl_ms:
            raise ConfigError(
                "operation_timeout_ms",
                f"{operation_timeout_ms} is not below a third of the lease of {lease_ttl_ms} ms",
            )
        link = Link(client_or_uri, database=database, prefix=prefix, timeout_ms=timeout_ms)
        self.needs_own_loop = link.needs_own_loop
        self.clock: Clock = clock or (LocalClock() if link.driver is Driver.MOCK else ServerClock())
        self._create_indexes = create_indexes
        super().__init__(
            Core(
                link,
                clock=self.clock,
                faults=faults or NoFaults(),
                deadline_ms=max(DEADLINE_MS, timeout_ms * 3),
                spill_above=spill_above,
                compress_above=compress_above,
                payload_max=payload_max,
                sealing=Sealing(keys, read_plain=read_plain),
            )
        )

    def hidden(self, digest: str) -> tuple[str, ...]:
        """A digest of content as it may stand in the open: keyed under each key, the current one
        first, and as it is last. What is written is the first, what is compared is any of them."""
        return self._core.sealing.keys.hidden(digest)

    def __repr__(self) -> str:
        return f"MongoStore({self._core.link!r})"

    async def open(self) -> None:
        """Check the server and make the indexes; see ``engine.ports.Store.open``."""
        core = self._core
        if core.link.is_open:
            return
        core.link.connect()
        try:
            if core.link.driver is not Driver.MOCK:
                # Any member will do: an election in the set is waited for below.
                with core.link.patience():
                    await core.opening(core.link.reach, timeout=nullcontext)
            elected = {"deadline_s": ELECTION_S}
            await core.opening(self._check_server, timeout=core.link.timeout, **elected)
            # Not bounded: an index over millions of documents takes its time.
            await core.opening(self._prepare_indexes, timeout=nullcontext, **elected)
        except BaseException:
            await core.link.close()
            raise
        log.debug("store opened", extra={"database": core.link.database_name})

    async def _prepare_indexes(self) -> None:
        core = self._core
        missing = await indexes.missing(core)
        if missing and not self._create_indexes:
            raise indexes.are_missing(core, missing)
        await indexes.make(core, missing)
        await indexes.check_unsharded(core)

    async def _check_server(self) -> None:
        core = self._core
        if core.link.driver is Driver.MOCK:
            return
        build = await core.link.command("buildInfo")
        version = tuple(build["versionArray"][:2])
        if version < OLDEST_SERVER:
            raise ConfigError(
                "MongoDB server", f"is version {build['version']}", "Use MongoDB 5.0 or newer."
            )
        probe = {**filters.by_id(""), "$expr": {"$lte": [SERVER_NOW, FAR]}}
        try:
            await core.collection(EXECUTIONS).find_one(probe)
        except Exception as error:  # read by ``verdict``
            if verdict(error) is not Verdict.DEFECT:
                raise
            raise ConfigError(
                "MongoDB server",
                f"refuses $$NOW in $expr ({type(error).__name__})",
                "Leases need it: use MongoDB itself; Amazon DocumentDB, Azure Cosmos DB and "
                "FerretDB do not have it.",
            ) from error

    async def close(self) -> None:
        """Close the client if it was made here. Repeat: yes."""
        await self._core.link.close()

    @asynccontextmanager
    async def keeper_link(self) -> AsyncIterator[KeeperLink]:
        """A connection for the keeper, to be entered on the loop that will use it."""
        async with self._core.link.twin(EXECUTIONS) as collection:
            yield KeeperLink(self._core, collection)
