"""MongoDB: the only part of the package that talks to a database."""

from __future__ import annotations

from durable_adk.store.mongo import MongoStore

__all__ = ["MongoStore"]
