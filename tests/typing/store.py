"""The store and its clocks have the shapes of the engine's ports. Checked, never run."""

from __future__ import annotations

from durable_adk.engine.ports import Clock, KeeperLink, Store
from durable_adk.store import MongoStore
from durable_adk.store.clock import LocalClock, ManualClock, ServerClock
from durable_adk.store.leases import KeeperLink as MongoKeeperLink


def is_a_store(store: MongoStore) -> Store:
    return store


def is_a_keeper_link(link: MongoKeeperLink) -> KeeperLink:
    return link


def are_clocks() -> tuple[Clock, ...]:
    return (ServerClock(), ManualClock(), LocalClock())
