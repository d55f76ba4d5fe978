"""Encrypted content: none of it is readable, none of it can be changed or moved, keys rotate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from mongomock_motor import AsyncMongoMockClient

from durable_adk.errors import ConfigError, CorruptHistory, KeyMissing, NotStorable
from durable_adk.model.artifact import ArtifactName, ArtifactScope, NewArtifact
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import new_nonce
from durable_adk.model.store_results import Reencrypted
from durable_adk.store.clock import LocalClock
from durable_adk.store.keys import Keys
from durable_adk.store.mongo import MongoStore
from durable_adk.store.sealing import SECRET, Sealing
from tests.conformance.bench import (
    COLLECTIONS,
    TTL_MS,
    Bench,
    answer,
    answered_of,
    failure,
    lease_of,
    next_step,
    record,
    step_of,
    suspend,
    wait,
)

K1, K2 = bytes(range(32)), bytes(range(1, 33))
OLD, BOTH, NEW = {"k1": K1}, {"k2": K2, "k1": K1}, {"k2": K2}
PLANTED = "planted7secret"
LARGE = json.dumps(f"{PLANTED} " * 200_000)


async def made(keys: Mapping[str, bytes] | None = None, *, client: Any = None) -> Bench:
    client = client or AsyncMongoMockClient()
    bench = Bench(client, database="d", clock=LocalClock(), is_real=False, keys=keys)
    await bench.store.open()
    return bench


def file_of(bench: Bench) -> ArtifactName:
    return ArtifactName(
        scope=ArtifactScope(tenant=bench.tenant, user_id="u", session_id="s1"), name="a.txt"
    )


async def live(bench: Bench) -> tuple[Execution, Execution]:
    """One that is suspended with an answer, one whose attempt failed; a secret in every field."""
    store, text = bench.store, json.dumps(PLANTED)
    expires = {"expires_at": 2**50, "on_expiry": text}
    await store.create_session(bench.session("s1", state=text))
    e = await bench.begin(input=LARGE, input_digest=PLANTED)
    e = await next_step(bench, e, [wait(1, content=text)])
    await store.insert_outcomes(
        e.run, [record(1, step=2, body=text), record(2, step=2, body=LARGE)]
    )
    step = step_of(e, events=text, finished=text, state=text, artifacts=text, scopes=text)
    asked = [wait(1, step=2, content=text), wait(2, step=2, content=LARGE, **expires)]
    frontier = await suspend(bench, e, asked, step)
    given = answer(text, digest=PLANTED, state=text)
    assert await store.put_answers(e.key, frontier, {0: given})
    await store.put_scopes(bench.tenant, "u", json.dumps({"user:k": PLANTED}), stamp="1")
    await store.save_artifact(
        NewArtifact(file=file_of(bench), content=LARGE, mime_type=PLANTED, metadata=text)
    )
    third = await bench.begin("e3", "s3")
    frontier = await suspend(bench, third, [wait(1, content=text, **expires)])
    assert await store.put_answers(third.key, frontier, {0: given})
    third = await bench.claim(third)
    await store.commit_continue(lease_of(third), third, answered_of(third))
    await suspend(bench, await bench.read(third), [wait(1, step=2, content=text)])
    other = await bench.begin("e2", "s2", input=text)
    await store.request_cancel(other.key, PLANTED)
    await store.attempt_failed(
        lease_of(other),
        status=Status.STUCK,
        error=failure(PLANTED),
        failures=1,
        voided=[],
        backoff_ms=0,
    )
    return await bench.read(e), await bench.read(other)


async def stored(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    return {name: await bench.raw(name, {}) for name in (*COLLECTIONS, "artifacts")}


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [one for k, v in value.items() for one in leaves(v, f"{path}.{k}")]
    if isinstance(value, list):
        return [one for v in value for one in leaves(v, f"{path}.*")]
    return [(path.removeprefix("."), value)]


async def test_no_field_shows_what_was_written() -> None:
    plain, sealed = await made(), await made(OLD)
    before, after = await live(plain), await live(sealed)
    assert repr(await stored(plain)).count(PLANTED) > 20  # what is compressed not counted
    found = await stored(sealed)
    assert PLANTED not in repr(found)
    assert {key for _, key in leaves(found) if key in ("k1", "k2")} == {"k1"}
    for one, other in zip(before, after, strict=True):
        assert (one.input, one.error, one.cancel) == (other.input, other.error, other.cancel)
        assert one.frontier == other.frontier
    loaded = await sealed.store.load_records(after[0].run, from_step=1)
    assert LARGE in [one.body for one in loaded]
    artifact = await sealed.store.load_artifact(file_of(sealed), None)
    assert artifact is not None
    assert (artifact[0].mime_type, artifact[1]) == (PLANTED, LARGE)


async def test_every_listed_field_is_one_that_the_store_writes() -> None:
    """But for what retention leaves in a session, forks inside an execution, results, imports."""
    bench = await made()
    await live(bench)
    found = await stored(bench)
    written = {(name, path) for name, docs in found.items() for doc in docs for path in _paths(doc)}
    listed = {(name, path) for name, paths in SECRET.items() for path in paths}
    missing = {f"{n}.{p}" for n, p in listed - written}
    assert {one for one in missing if ".base." not in one and ".next." not in one} == {
        "executions.result",
        "sessions.artifacts",
        "sessions.import.own",
    }


def _paths(doc: Any, path: tuple[str, ...] = ()) -> set[str]:
    found = {".".join(path)}
    if isinstance(doc, dict):
        for key, value in doc.items():
            found |= _paths(value, (*path, "*" if key.isdigit() else key))
    elif isinstance(doc, list):
        for value in doc:
            found |= _paths(value, (*path, "*"))
    return found


# ---------------------------------------------------------------- changed and moved


async def change(bench: Bench, name: str, key: str, **fields: Any) -> None:
    result = await bench.collection(name).update_one({"_id": key}, {"$set": fields})
    assert result.matched_count == 1


@pytest.mark.parametrize("what", ["a bit", "another document's", "another field's", "its size"])
async def test_what_was_changed_or_moved_is_corruption(what: str) -> None:
    bench = await made(OLD)
    text = json.dumps("x" * 5_000)
    e, other = await bench.begin(input=text), await bench.begin("e2", "s2", input=text)
    one, two = [await bench.raw("executions", {"_id": x.key}) for x in (e, other)]
    given = one[0]["input"]
    match what:
        case "a bit":
            data = bytearray(given["zip"])
            data[40] ^= 1
            value = {**given, "zip": bytes(data)}
        case "another document's":
            value = two[0]["input"]
        case "another field's":
            value = one[0]["input_digest"]
        case _:
            value = {**given, "size": 3}
    await change(bench, "executions", e.key, input=value)
    with pytest.raises(CorruptHistory, match=f"executions {e.key}: input is not what was stored"):
        await bench.read(e)
    assert (await bench.read(other)).input == text


@pytest.mark.parametrize("what", ["swapped", "shortened", "of another time"])
async def test_chunks_are_bound_to_their_place_and_number(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_adk.store.payloads.CHUNK_BYTES", 1_000_000)
    bench = await made(OLD)
    e = await bench.begin(input=LARGE)
    chunks = sorted(await bench.raw("payloads", {}), key=lambda doc: str(doc["_id"]))
    assert len(chunks) >= 2
    match what:
        case "swapped":
            await change(bench, "payloads", chunks[0]["_id"], b=chunks[1]["b"])
        case "shortened":
            await change(bench, "executions", e.key, **{"input.n": len(chunks) - 1})
        case _:  # sealed in its place, under the same key, and not what the document means
            sealing, key = Sealing(OLD), chunks[0]["_id"]
            forged = sealing.document("payloads", {"_id": key, "b": b"x" * 1_000_000})
            await change(bench, "payloads", key, b=forged["b"])
    with pytest.raises(CorruptHistory):
        await bench.read(e)


async def test_plain_content_is_read_unless_that_is_switched_off() -> None:
    client = AsyncMongoMockClient()
    plain = await made(client=client)
    e = await plain.begin()
    assert await (await plain.rival(keys=OLD)).get_execution(e.key) == e
    strict = await plain.rival(keys=OLD, read_plain=False)
    with pytest.raises(CorruptHistory, match=r"is not encrypted.*reencrypt"):
        await strict.get_execution(e.key)
    await strict.reencrypt(plain.tenant)
    assert await strict.get_execution(e.key) == e


# ---------------------------------------------------------------- keys


async def test_without_its_key_nothing_is_read_or_taken_and_the_error_names_it() -> None:
    bench = await made(OLD)
    e = await bench.begin(run_now=False)
    for keys in (None, NEW):
        rival = await bench.rival(keys=keys)
        with pytest.raises(KeyMissing, match="'k1'") as missing:
            await rival.get_execution(e.key)
        assert missing.value.key_id == "k1"
        assert isinstance(missing.value, ConfigError)
        assert await rival.list_due(bench.tenant, version=None, limit=9) == ()
        assert await rival.claim(e.key, nonce=new_nonce(), ttl_ms=TTL_MS) is None
    assert await bench.store.list_due(bench.tenant, version=None, limit=9) == (e.key,)
    assert (await bench.claim(e)).token == 1


def test_keys_are_shown_by_nothing_and_have_one_size() -> None:
    assert repr(Keys(BOTH)) == "Keys(k2, k1)"
    with pytest.raises(ConfigError, match=r"encryption\.keys\.short: has 3 bytes") as refused:
        Keys({"short": b"abc"})
    assert "abc" not in str(refused.value)


def test_a_digest_in_the_open_is_keyed_and_comparable_over_a_rotation() -> None:
    digest = "0" * 32
    old, both = Keys(OLD).hidden(digest), Keys(BOTH).hidden(digest)
    assert Keys({}).hidden(digest) == (digest,)
    assert old[0] != digest and len(old[0]) == 32
    assert both == (Keys(NEW).hidden(digest)[0], *old)


# ---------------------------------------------------------------- rotation


@pytest.mark.parametrize("before", [None, OLD], ids=["plain", "another key"])
async def test_a_pass_brings_everything_under_the_current_key(
    before: Mapping[str, bytes] | None,
) -> None:
    bench = await made(before)
    e, other = await live(bench)
    records = await bench.store.load_records(e.run, from_step=1)
    rotating = await bench.rival(keys=BOTH)
    done = await rotating.reencrypt(bench.tenant)
    assert done.seen == sum(map(len, (await stored(bench)).values()))
    assert 0 < done.rewritten <= done.seen
    assert await rotating.reencrypt(bench.tenant) == Reencrypted(seen=done.seen, rewritten=0)
    assert PLANTED not in repr(await stored(bench))
    after = await bench.rival(keys=NEW, read_plain=False)
    assert await after.get_execution(e.key) == e
    assert await after.get_execution(other.key) == other
    assert await after.load_records(e.run, from_step=1) == records
    artifact = await after.load_artifact(file_of(bench), None)
    assert artifact is not None
    assert artifact[1] == LARGE
    values, _stamp = await after.load_scopes(bench.tenant, "u")
    assert values == {"user:k": json.dumps(PLANTED)}
    frontier = e.frontier
    assert frontier is not None
    assert await after.put_answers(e.key, frontier, {1: answer()})  # it goes on as it stands
    claimed = await after.claim(e.key, nonce=new_nonce(), ttl_ms=TTL_MS)
    assert claimed is not None and claimed.frontier is not None
    assert claimed.frontier.open == 0


async def test_a_pass_undoes_nothing_that_is_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await made(OLD)
    e = await bench.begin()
    rotating = await bench.rival(keys=BOTH)
    newer: list[bool] = []

    async def put(self: Any, name: str, found: Any, update: Any, *, real: Any = None) -> bool:
        if name == "executions" and not newer:  # the owner is faster
            newer.append(await bench.store.release(lease_of(e)))
            await change(bench, name, e.key, input=sealed)
        return await original(self, name, found, update)

    sealed = Sealing(OLD).document("executions", {"_id": e.key, "input": '"newer"'})["input"]
    original = type(rotating)._put
    monkeypatch.setattr(type(rotating), "_put", put)
    await rotating.reencrypt(bench.tenant)
    assert newer == [True]
    found = await (await bench.rival(keys=NEW)).get_execution(e.key)
    assert found is not None
    assert (found.input, found.status) == ('"newer"', Status.QUEUED)


async def test_a_pass_touches_no_other_tenant_and_needs_a_key() -> None:
    client = AsyncMongoMockClient()
    mine, others = await made(OLD, client=client), await made({"theirs": K2}, client=client)
    await mine.begin()
    e = await others.begin()
    assert (await mine.store.reencrypt(mine.tenant)).rewritten == 0
    assert await others.read(e) == e
    plain = await mine.rival(keys=None)
    with pytest.raises(ConfigError, match="no key to encrypt with"):
        await plain.reencrypt(mine.tenant)


# ---------------------------------------------------------------- sizes


async def test_what_is_larger_than_the_limit_is_refused_before_anything_is_stored() -> None:
    bench = await made()
    small = MongoStore(bench.client, database="d", clock=bench.clock, payload_max=2_048)
    await small.open()
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1)])
    before = await stored(bench)
    large = json.dumps("x" * 2_200)
    refused = [
        small.begin(bench.new("e2", "s2", input=large)),
        small.begin(bench.new("e2", "s2", initial_state=large)),
        small.create_session(bench.session("s2", state=large)),
        small.put_answers(e.key, frontier, {0: answer(large)}),
        small.save_artifact(
            NewArtifact(file=file_of(bench), content=large, mime_type="", metadata=None)
        ),
    ]
    for one in refused:
        with pytest.raises(NotStorable, match=r"has 2202 bytes, and payload\.max is 2048"):
            await one
    assert await stored(bench) == before
    assert await small.put_answers(e.key, frontier, {0: answer(json.dumps("e" * 2_000))})


@pytest.mark.parametrize(("above", "expected"), [(2_048, "zip"), (None, "text"), (9_000, "text")])
async def test_what_is_compressed_can_be_chosen(above: int | None, expected: str) -> None:
    bench = await made()
    store = await bench.rival(compress_above=above)
    text = json.dumps("x" * 5_000)
    await store.begin(bench.new(input=text))
    (doc,) = await bench.raw("executions", {})
    assert (doc["input"] == text) == (expected == "text")
    assert ("zip" in doc["input"]) == (expected == "zip")
