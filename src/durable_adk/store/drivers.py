"""Which driver the user gave, and everything that differs between the three.

Words: a *link* is one client with our settings on it; its *twin* is a second connection to the
same place for the lease keeper's own loop. Motor and mongomock are recognised by the name of
their module, so that this module imports neither.

Majority and journaled writes, majority reads and the primary are set here on the database
handle, whatever the connection string says. ``wtimeout`` is refused: the driver would hide a
write-concern error behind ``DuplicateKeyError``.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote

import pymongo
from bson import CodecOptions, Timestamp
from pymongo import AsyncMongoClient, MongoClient, ReadPreference, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from durable_adk.errors import ConfigError
from durable_adk.store.errors import NotOpen

_SETTINGS: dict[str, Any] = {
    # Plain dictionaries and bytes, whatever codec the user's client has.
    "codec_options": CodecOptions(),
    "read_preference": ReadPreference.PRIMARY,
    "read_concern": ReadConcern("majority"),
    "write_concern": WriteConcern("majority", j=True),
}
_DATABASE_NAME = re.compile(r"[^\s/\\.\"$*<>:|?\x00]{1,63}")
_PREFIX = re.compile(r"[A-Za-z0-9_\-]{0,64}")
_TWIN_POOL = 8
_OF_THE_SERVER = frozenset({"admin", "config", "local"})
_DRIVER_PATIENCE_S = 30
"""PyMongo's own ``serverSelectionTimeoutMS``: what a client has that says nothing."""

FIRST_ANSWER_S: Final = 5.0
"""How long opening waits for any server to answer, unless the client says so itself."""


class Driver(enum.Enum):
    """What the user gave."""

    URI = "a connection string"
    PYMONGO = "PyMongo's AsyncMongoClient"
    MOTOR = "Motor's AsyncIOMotorClient"
    MOCK = "mongomock-motor's AsyncMongoMockClient"


def recognised(given: object) -> Driver:
    """Say which driver an object is of.

    Raises:
        ConfigError: none of the three.
    """
    if isinstance(given, str):
        return Driver.URI
    if isinstance(given, AsyncMongoClient):
        return Driver.PYMONGO
    # type(), not __class__: mongomock-motor's classes claim to be Motor's.
    names = [f"{c.__module__}.{c.__qualname__}" for c in type(given).__mro__]
    if any(name.startswith("mongomock_motor.") for name in names):
        return Driver.MOCK
    if any(n.startswith("motor.") and n.endswith(".AsyncIOMotorClient") for n in names):
        return Driver.MOTOR
    found = names[0]
    if isinstance(given, MongoClient) or found.startswith(("motor.", "mongomock.")):
        remedy = "This package is asynchronous: pass pymongo.AsyncMongoClient(...)."
    else:
        remedy = "Pass a connection string, an AsyncMongoClient or an AsyncIOMotorClient."
    raise ConfigError("mongodb", f"{found} is no MongoDB client that can be used", remedy)


def database_in(given: object) -> str | None:
    """The database that the path of a connection string names; None if there is no such name.

    ``admin``, ``config`` and ``local`` belong to the server: as a path they say where the
    user's credentials are kept, not where data should go.
    """
    if not isinstance(given, str):
        return None
    path = given.partition("://")[2].partition("?")[0].partition("/")[2]
    name = unquote(path).partition(".")[0]  # a path may name a collection, too
    return name if name and name not in _OF_THE_SERVER else None


class Link:
    """A client of any of the three drivers, with our settings on its database.

    Attributes:
        driver: What the user gave.
        needs_own_loop: Whether a twin works on another event loop.
        hosts: The servers that the client was told of, for messages; empty before ``connect``.
    """

    def __init__(self, given: object, *, database: str, prefix: str, timeout_ms: int) -> None:
        if not _DATABASE_NAME.fullmatch(database):
            raise ConfigError("mongodb.database", f"{database!r} is no database name")
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(
                "mongodb.collection_prefix", f"{prefix!r} has characters other than A-Z 0-9 _ -"
            )
        self.driver = recognised(given)
        self.needs_own_loop = self.driver is not Driver.MOCK
        self.database_name = database
        self.prefix = prefix
        self.hosts = ""
        self._timeout_s = timeout_ms / 1000
        self._given: Any = given
        self._client: Any = None
        self._database: Any = None
        self._collections: dict[str, Any] = {}
        self._newest: Timestamp | None = None

    def __repr__(self) -> str:
        """Name the driver and the database; never the connection string."""
        return f"<Link {self.driver.name} {self.database_name}.{self.prefix}*>"

    @property
    def is_open(self) -> bool:
        return self._database is not None

    def connect(self) -> None:
        """Make or take the client on the running loop. No traffic.

        Raises:
            ConfigError: a connection string that cannot be read, ``wtimeout``, another loop,
                or a PyMongo that cannot make the keeper's client.
        """
        if self.driver is Driver.URI:
            self._client = _client_of(self._given)
        else:
            self._client = self._given
        if self.driver is Driver.MOTOR and self._client.get_io_loop() is not _running_loop():
            raise ConfigError(
                "MongoDB client",
                "it belongs to another event loop",
                "Pass the connection string, or a client made on the loop that runs the app.",
            )
        if self.driver is Driver.PYMONGO:
            _duplicator(self._client)
        self._database = self._configured(self._client)
        self._collections = {}
        if self.driver is not Driver.MOCK:
            known = self._of_pymongo().topology_description.server_descriptions()
            self.hosts = ", ".join(sorted(f"{h}:{p}" if p else h for h, p in known))

    async def close(self) -> None:
        """Close the client if it was made here. Repeat: yes."""
        client, self._client, self._database = self._client, None, None
        self._collections = {}
        self._newest = None
        if client is not None and self.driver is Driver.URI:
            await client.close()

    def _configured(self, client: Any) -> Any:
        if self.driver is Driver.MOCK:
            return client[self.database_name]
        if "wtimeout" in client.write_concern.document:
            raise ConfigError(
                "mongodb.uri",
                "wtimeoutMS is set: it would hide whether a write is durable",
                "Remove it; every operation is bounded by timeoutMS already.",
            )
        return client.get_database(self.database_name, **_SETTINGS)

    def collection(self, name: str) -> Any:
        """One of our collections, by its name without the prefix."""
        if self._database is None:
            raise NotOpen
        found = self._collections.get(name)
        if found is None:  # a driver makes a new object each time, which is not cheap
            found = self._collections[name] = self._database[self.prefix + name]
        return found

    async def command(self, name: str, value: object = 1) -> dict[str, Any]:
        """Run a command on our database (real servers only)."""
        found: dict[str, Any] = await self._database.command(name, value)
        return found

    async def reach(self) -> None:
        """Have any server answer (real servers only)."""
        await self._database.command("ping", read_preference=ReadPreference.NEAREST)

    def patience(self) -> AbstractContextManager[None]:
        """Bound the wait for the first answer of any server.

        ``serverSelectionTimeoutMS`` of the client does, if it is set.
        """
        if self.driver is Driver.MOCK:
            return contextlib.nullcontext()
        says_so = self.driver is Driver.URI and "serverselectiontimeoutms=" in self._given.lower()
        own: float = self._of_pymongo().options.server_selection_timeout
        if says_so or own != _DRIVER_PATIENCE_S:
            return pymongo.timeout(own)
        return pymongo.timeout(min(FIRST_ANSWER_S, 2 * self._timeout_s))

    def _of_pymongo(self) -> Any:
        """The client itself, or the one under a Motor client."""
        return self._client.delegate if self.driver is Driver.MOTOR else self._client

    def timeout(self) -> AbstractContextManager[None]:
        """Bound the operations inside. ``timeoutMS`` without ``wtimeout``."""
        if self.driver is Driver.MOCK:
            return contextlib.nullcontext()
        return pymongo.timeout(self._timeout_s)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """A causally consistent session that sees all that any session here has seen.

        Right after a failover a majority read may miss an acknowledged write unless it is told
        the time of that write. mongomock has no sessions: None.
        """
        if self._database is None:
            raise NotOpen(nothing_sent=True)
        if self.driver is Driver.MOCK:
            yield None
            return
        session = self._client.start_session(causal_consistency=True)
        if self.driver is Driver.MOTOR:
            session = await session
        try:
            if self._newest is not None:
                session.advance_operation_time(self._newest)
            yield session
        finally:
            seen = session.operation_time
            if seen is not None and (self._newest is None or seen > self._newest):
                self._newest = seen
            await session.end_session()

    @asynccontextmanager
    async def twin(self, name: str) -> AsyncIterator[Any]:
        """One collection over a connection of its own, to be entered on the loop that uses it."""
        match self.driver:
            case Driver.MOCK:
                yield self.collection(name)
            case Driver.MOTOR:
                yield _InThread(self._configured(self._client.delegate)[self.prefix + name])
            case _:
                client = (
                    _client_of(self._given, maxPoolSize=_TWIN_POOL)
                    if self.driver is Driver.URI
                    else _duplicator(self._given)(maxPoolSize=_TWIN_POOL)
                )
                try:
                    yield self._configured(client)[self.prefix + name]
                finally:
                    await client.close()


class _InThread:
    """The synchronous collection under a Motor one, for a loop that is not the client's."""

    def __init__(self, collection: Any) -> None:
        self._collection = collection

    async def find_one_and_update(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._collection.find_one_and_update, *args, **kwargs)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _client_of(uri: str, **options: Any) -> AsyncMongoClient[dict[str, Any]]:
    kind = "no scheme"
    try:
        if not uri.startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError(kind)  # the driver would take the whole text for a host name
        return AsyncMongoClient(uri, **options)
    except (PyMongoError, ValueError) as error:
        # The driver's text may quote the password: neither shown nor chained.
        kind = type(error).__name__
    raise ConfigError(
        "mongodb.uri", f"cannot be read ({kind})", "Write mongodb://[user:password@]host[:port]/."
    ) from None


def _duplicator(client: AsyncMongoClient[dict[str, Any]]) -> Any:
    """The one private name of PyMongo that is used: a second client with the same settings."""
    duplicate = getattr(client, "_duplicate", None)
    if duplicate is None:
        raise ConfigError(
            "MongoDB client",
            f"PyMongo {pymongo.version} cannot make a second client from it",
            "Pass the connection string instead of a client.",
        )
    return duplicate
