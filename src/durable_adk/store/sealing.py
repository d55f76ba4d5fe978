"""Which fields hold what users wrote, and their encryption on the way in and out.

``Core`` hands every document and every update through here, so that nobody who writes has to
think of it: ``SECRET`` says by path what is content. A field that is not there stays readable.

A sealed value is an object with ``key``, the id of its key, and one of::

    {"key", "enc": sealed UTF-8}                         a text
    {"key", "bin": sealed}                               bytes
    {"key", "zip": sealed zlib data, "size"}             a compressed payload
    {"key", "seal": sealed digest, "ref", "n", "size"}   a payload in chunks, each sealed by itself

Its associated data names collection, ``_id``, path and the open members beside it: a value that
was changed, or moved from elsewhere, does not open. Members are read back as they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from durable_adk.errors import ConfigError, CorruptHistory, unread_here
from durable_adk.store.keys import Keys

Doc = dict[str, Any]
Tree = Mapping[str, Any]
Path = tuple[str, ...]
Change = Callable[[Path, Any], Any]

_ANY: Final = "*"

FRONTIER: Final = (
    "contents",
    "waits.*.c",
    "waits.*.onx",
    "answers.*.digest",
    "answers.*.value",
    "answers.*.state",
)
SECRET: Final[Mapping[str, tuple[str, ...]]] = {
    "executions": (
        "input",
        "input_digest",
        "result",
        "error.message",
        "error.remedy",
        "cancel.reason",
        *(f"frontier.{path}" for path in FRONTIER),
    ),
    "activities": ("body", "rd", "wait.c", "wait.onx", "answer.digest", "answer.state"),
    "steps": ("ev", "fin", "state", "art", "scopes"),
    "sessions": (
        "state",
        "artifacts",
        "import.own",
        "base.state",
        "base.artifacts",
        *(f"next.frontier.{path}" for path in FRONTIER),
    ),
    "scopes": ("value",),
    "artifacts": ("body", "meta", "mime"),
    "payloads": ("b",),
}
"""By collection, the paths of what users wrote; ``*`` is any place of a list or a map."""


def _tree(paths: tuple[str, ...]) -> Tree:
    root: dict[str, Any] = {}
    for path in paths:
        *groups, leaf = path.split(".")
        at = root
        for name in groups:
            at = at.setdefault(name, {})
        at[leaf] = None
    return root


_TREES: Final = {name: _tree(paths) for name, paths in SECRET.items()}


class Sealing:
    """Seals what is written and opens what is read."""

    def __init__(self, keys: Mapping[str, bytes] | None = None, *, read_plain: bool = True) -> None:
        """Without keys nothing is sealed, and nothing that is sealed can be opened.

        Args:
            keys: 32 bytes each, by id; the first one encrypts.
            read_plain: Off: content that is not sealed is refused.

        Raises:
            ConfigError: a key of another size.
        """
        self.keys = Keys(keys or {})
        self._read_plain = read_plain or not self.is_on

    @property
    def is_on(self) -> bool:
        return bool(self.keys.current)

    def readable(self) -> Doc:
        """The part of a filter that leaves out executions under keys that are not here."""
        return {"$nor": [{"input.key": {"$exists": True, "$nin": list(self.keys.names)}}]}

    def document(self, name: str, doc: Doc) -> Doc:
        """A document as it is stored in this collection."""
        tree = _TREES.get(name)
        if tree is None or not self.is_on:
            return doc
        sealed: Doc = _changed(tree, doc, (), self._sealer(name, doc["_id"]))
        return sealed

    def update(self, name: str, key: str, update: Any) -> Any:
        """An update (or a pipeline of them) of the document ``key`` of this collection."""
        tree = _TREES.get(name)
        if tree is None or not self.is_on:
            return update
        if isinstance(update, list):
            return [self.update(name, key, stage) for stage in update]
        if "$set" not in update:
            return update
        change = self._sealer(name, key)
        fields = {
            path: _changed_at(tree, tuple(path.split(".")), value, change)
            for path, value in update["$set"].items()
        }
        return {**update, "$set": fields}

    def opened(self, name: str, doc: Doc) -> Doc:
        """A document as it was given to ``document``, whole or in part. Changes ``doc``.

        Raises:
            KeyMissing: a key that this store does not have.
            CorruptHistory: a value is not what was stored in its place, or is not sealed although
                it has to be.
        """
        tree = _TREES.get(name)
        if tree is None:
            return doc

        def change(path: Path, value: Any) -> Any:
            return self._opened(name, doc["_id"], path, value)

        opened: Doc = _changed(tree, doc, (), change)
        return opened

    def resealed(self, name: str, doc: Doc) -> Iterator[tuple[Path, Any, Any]]:
        """Of a stored document: path, value and opened value of what the current key has not
        sealed."""
        tree = _TREES.get(name)
        for path, value in _leaves(tree or {}, doc, ()):
            if value is not None and (_key_of(value) or "") != self.keys.current:
                yield path, value, self._opened(name, doc["_id"], path, value, force=True)

    def sealed(self, name: str, key: str, path: Path, value: Any) -> Any:
        return self._sealer(name, key)(path, value)

    # ------------------------------------------------------------------ one value

    def _sealer(self, name: str, key: str) -> Change:
        def change(path: Path, value: Any) -> Any:
            return self._sealed(name, key, path, value)

        return change

    def _sealed(self, name: str, key: str, path: Path, value: Any) -> Any:
        def seal(member: str, data: bytes, size: object = "", ref: object = "") -> bytes:
            return self.keys.seal(data, _about(name, key, path, member, size, ref))

        match value:
            case None:
                return None
            case str():
                data = value.encode("utf-8", "surrogatepass")
                return {"key": self.keys.current, "enc": seal("enc", data)}
            case bytes():
                return {"key": self.keys.current, "bin": seal("bin", value)}
            case {"zip": data, "size": size}:
                sealed = seal("zip", data, size)
                return {"key": self.keys.current, "zip": sealed, "size": size}
            case {"ref": ref, "n": n, "size": size, "sha": sha}:
                sealed = seal("seal", sha, size, f"{ref} {n}")
                return {
                    "key": self.keys.current,
                    "seal": sealed,
                    "ref": ref,
                    "n": n,
                    "size": size,
                }
        raise ConfigError(f"{name} {key}", f"{'.'.join(path)} cannot be encrypted")

    def _opened(self, name: str, key: str, path: Path, value: Any, *, force: bool = False) -> Any:
        what = f"{name} {key}"
        sealed_with = _key_of(value)
        if sealed_with is None:
            if value is not None and not (self._read_plain or force):
                raise unread_here(
                    what,
                    f"{'.'.join(path)} is not encrypted, and encryption.read_plain is false",
                    "Call app.reencrypt() with encryption.read_plain: true first.",
                )
            return value
        member = next((one for one in ("enc", "bin", "zip", "seal") if one in value), None)
        if member is None:
            raise unread_here(
                what,
                f"{'.'.join(path)} has {', '.join(sorted(value))}, which this version cannot read",
            )
        size, ref = value.get("size", ""), value.get("ref", "")
        about = _about(name, key, path, member, size, f"{ref} {value['n']}" if ref else "")
        data = self.keys.open(sealed_with, value[member], about)
        if data is None:
            raise CorruptHistory(
                what,
                f"{'.'.join(path)} is not what was stored there: it was changed or moved, or key"
                f" {sealed_with!r} is not the one of this name that it was encrypted with",
                f"Compare encryption.keys: {sealed_with} with that of the process that wrote it.",
            )
        match member:
            case "enc":
                return data.decode("utf-8", "surrogatepass")
            case "bin":
                return data
            case "zip":
                return {"zip": data, "size": size}
        return {"ref": ref, "n": value["n"], "size": size, "sha": data}


def _key_of(value: Any) -> str | None:
    """The id of the key of a sealed value; None: it is not sealed."""
    return value.get("key") if isinstance(value, dict) else None


def _about(name: str, key: str, path: Path, member: str, size: object, ref: object) -> bytes:
    parts = ("durable-adk 1", name, key, ".".join(path), member, str(size), str(ref))
    return "\0".join(parts).encode("utf-8", "surrogatepass")


# ---------------------------------------------------------------- walking


def _changed(tree: Tree | None, value: Any, path: Path, change: Change) -> Any:
    """A value with its leaves changed; where there are none it is the same object."""
    if tree is None:
        return change(path, value)
    if isinstance(value, dict):
        if _ANY in tree:
            inner = tree[_ANY]
            return {k: _changed(inner, v, (*path, k), change) for k, v in value.items()}
        changed = dict(value)
        for name, inner in tree.items():
            if name in changed:
                changed[name] = _changed(inner, changed[name], (*path, name), change)
        return changed
    if isinstance(value, list) and _ANY in tree:
        inner = tree[_ANY]
        return [_changed(inner, v, (*path, str(i)), change) for i, v in enumerate(value)]
    return value


def _changed_at(tree: Tree, path: Path, value: Any, change: Change) -> Any:
    """The value that an update sets at a path, which may lead into the tree or past it."""
    at: Tree | None = tree
    for name in path:
        if at is None or not (name in at or _ANY in at):
            return value
        at = at[name] if name in at else at[_ANY]
    return _changed_in(at, value, path, change)


_OF_PARTS = frozenset({"$cond", "$ifNull", "$mergeObjects"})
"""Expressions that give one of their parts, or all of them."""


def _changed_in(tree: Tree | None, value: Any, path: Path, change: Change) -> Any:
    """The same of an expression: what it gives as a literal."""
    if isinstance(value, dict) and len(value) == 1:
        ((operator, operand),) = value.items()
        if operator == "$literal":
            return {operator: _changed(tree, operand, path, change)}
        if operator in _OF_PARTS and isinstance(operand, list):
            return {operator: [_changed_in(tree, one, path, change) for one in operand]}
        if operator.startswith("$"):
            return value
    return (
        value
        if isinstance(value, str) and value.startswith("$")
        else _changed(tree, value, path, change)
    )


def _leaves(tree: Tree | None, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if tree is None:
        yield path, value
    elif isinstance(value, dict):
        for name, one in value.items():
            if name in tree or _ANY in tree:
                yield from _leaves(tree[name if name in tree else _ANY], one, (*path, name))
    elif isinstance(value, list) and _ANY in tree:
        for place, one in enumerate(value):
            yield from _leaves(tree[_ANY], one, (*path, str(place)))
