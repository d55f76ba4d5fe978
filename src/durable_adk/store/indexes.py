"""The indexes, what each serves, and making sure of them before the first insert.

``activities``, ``steps`` and ``payloads`` have only ``_id``: nothing else on the hot path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from durable_adk.errors import ConfigError
from durable_adk.store.core import EXECUTIONS, SCOPES, SESSIONS, Core
from durable_adk.store.drivers import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """One index.

    Attributes:
        collection: Name without the prefix.
        keys: Field and direction.
        where: Partial filter, or empty.
        serves: What breaks or crawls without it.
    """

    collection: str
    name: str
    keys: tuple[tuple[str, int], ...]
    serves: str
    is_unique: bool = False
    where: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name}
        if self.is_unique:
            found["unique"] = True
        if self.where:
            found["partialFilterExpression"] = self.where
        return found

    def shell(self, prefix: str) -> str:
        """The mongosh command that makes it."""
        keys, options = json.dumps(dict(self.keys)), json.dumps(self.options)
        return f"db.{prefix}{self.collection}.createIndex({keys}, {options})"


TURNS: Final = "turns"
CREATED: Final = "created"
STATUS: Final = "status"

INDEXES: Final = (
    Index(
        collection=EXECUTIONS,
        name=TURNS,
        keys=(("sk", 1), ("turn", 1)),
        is_unique=True,
        serves="one active execution per session; a session's last turn, list and history",
    ),
    Index(
        collection=EXECUTIONS,
        name="wake",
        keys=(("ns", 1), ("app", 1), ("wake_at", 1)),
        where={"active": True},
        serves="what is due, and when to look again",
    ),
    Index(
        collection=EXECUTIONS,
        name="inbox",
        keys=(("ns", 1), ("app", 1), ("waiting_since", 1), ("_id", 1)),
        where={"waiting": True},
        serves="open waits, oldest first",
    ),
    Index(
        collection=EXECUTIONS,
        name=STATUS,
        keys=(("ns", 1), ("app", 1), ("status", 1), ("created_at", -1), ("_id", -1)),
        serves="executions with one status, newest first; stuck ones",
    ),
    Index(
        collection=EXECUTIONS,
        name=CREATED,
        keys=(("ns", 1), ("app", 1), ("created_at", -1), ("_id", -1)),
        serves="executions of every status, newest first: a status changes under a scan",
    ),
    Index(
        collection=EXECUTIONS,
        name="scopes_due",
        keys=(("ns", 1), ("app", 1), ("scopes_due", 1)),
        where={"scopes_due": True},
        serves="shared state that is not applied yet",
    ),
    Index(
        collection=SESSIONS,
        name="users",
        keys=(("ns", 1), ("app", 1), ("user", 1), ("created_at", 1), ("_id", 1)),
        serves="a user's sessions, oldest first",
    ),
    Index(
        collection=SESSIONS,
        name="lineage",
        keys=(("lineage.sk", 1),),
        serves="the forks of a session, before anything of it is removed",
    ),
    Index(
        collection=SESSIONS,
        name="next",
        keys=(("next.ek", 1),),
        where={"next.ek": {"$exists": True}},
        serves="the fork whose first execution has an id, before there is that execution",
    ),
    Index(
        collection=SCOPES,
        name="users",
        keys=(("ns", 1), ("app", 1), ("user", 1)),
        serves="the shared state of a user and of the app",
    ),
    Index(
        collection=SCOPES,
        name="left",
        keys=(("ns", 1), ("app", 1), ("left.since", 1)),
        where={"left.since": {"$exists": True}},
        serves="overwritten shared state whose chunks are still there",
    ),
)

_CONFLICT_CODES = frozenset({85, 86})  # IndexOptionsConflict, IndexKeySpecsConflict

UNSHARDED: Final = (EXECUTIONS, SESSIONS, SCOPES)
"""Their unique indexes and compare-and-sets need one shard."""


async def missing(core: Core) -> tuple[Index, ...]:
    """The indexes that are not there as they should be."""
    found = {
        name: await core.collection(name).index_information()
        for name in {index.collection for index in INDEXES}
    }
    return tuple(i for i in INDEXES if not _is_there(i, found[i.collection].get(i.name)))


async def make(core: Core, wanted: Sequence[Index]) -> None:
    """Create indexes; safe when many processes do it at once.

    Raises:
        ConfigError: an index of this name exists with other keys.
    """
    for index in wanted:
        try:
            await core.collection(index.collection).create_index(list(index.keys), **index.options)
        except Exception as error:  # read by its code
            if getattr(error, "code", None) not in _CONFLICT_CODES:
                raise
            raise ConfigError(
                f"index {index.name} of {core.link.prefix}{index.collection}",
                "exists with other keys or options",
                f"Drop it; it is made as {index.shell(core.link.prefix)}.",
            ) from error


def are_missing(core: Core, found: Sequence[Index]) -> ConfigError:
    """The error that names missing indexes and the commands that make them."""
    prefix = core.link.prefix
    names = ", ".join(f"{prefix}{index.collection}.{index.name}" for index in found)
    commands = "; ".join(index.shell(prefix) for index in found)
    return ConfigError(
        "mongodb.create_indexes", f"is off and {names} is missing", f"Run: {commands}"
    )


def _is_there(index: Index, found: dict[str, Any] | None) -> bool:
    if found is None:
        return False
    keys = tuple((name, int(direction)) for name, direction in found["key"])
    is_unique = bool(found.get("unique", False))
    return (keys, is_unique, dict(found.get("partialFilterExpression") or {})) == (
        index.keys,
        index.is_unique,
        index.where,
    )


async def check_unsharded(core: Core) -> None:
    """Refuse sharded collections that must not be.

    Raises:
        ConfigError: naming the collection.
    """
    if core.link.driver is Driver.MOCK:
        return
    if (await core.link.command("hello")).get("msg") != "isdbgrid":
        return
    for name in UNSHARDED:
        stats = await core.link.command("collStats", core.link.prefix + name)
        if stats.get("sharded"):
            raise ConfigError(
                f"collection {core.link.prefix}{name}",
                "is sharded",
                "Unshard it; activities, steps and payloads may be sharded on {_id: 1}.",
            )
