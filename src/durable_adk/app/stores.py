"""The store that settings name; no traffic."""

from __future__ import annotations

from durable_adk.config import DEFAULT_DATABASE, Settings
from durable_adk.engine.ports import Clock, Faults
from durable_adk.errors import ConfigError
from durable_adk.store.drivers import database_in
from durable_adk.store.mongo import MongoStore


def make_store(
    settings: Settings,
    mongodb: object,
    *,
    clock: Clock | None = None,
    faults: Faults | None = None,
) -> MongoStore:
    """A store that is not open yet, over a client or a connection string.

    Raises:
        ConfigError: no MongoDB is named, or what ``MongoStore`` refuses.
    """
    if mongodb is None:
        raise ConfigError(
            f"{settings.source}: mongodb.uri",
            "no MongoDB is named",
            "Set it, set the environment variable MONGODB_URI, or pass mongodb=.",
        )
    return MongoStore(
        mongodb,
        database=settings.database or database_in(mongodb) or DEFAULT_DATABASE,
        prefix=settings.collection_prefix,
        create_indexes=settings.create_indexes,
        lease_ttl_ms=settings.lease_ttl_ms,
        spill_above=settings.spill_above,
        compress_above=settings.compress_above,
        payload_max=settings.payload_max,
        keys=settings.encryption_keys,
        read_plain=settings.read_plain,
        clock=clock,
        faults=faults,
    )
