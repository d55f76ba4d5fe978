from __future__ import annotations

import inspect

import pytest
from pymongo import errors as driver

from durable_adk.errors import ConfigError, NotStorable, Unavailable, WriteUnknown
from durable_adk.store.errors import (
    TABLE,
    LostReply,
    NotOpen,
    Unsettled,
    Verdict,
    is_transient,
    may_be_done,
    translated,
    verdict,
)


def driver_classes() -> list[type[Exception]]:
    return [
        value
        for name, value in vars(driver).items()
        if inspect.isclass(value)
        and issubclass(value, driver.PyMongoError | driver.InvalidDocument)
        and value.__module__ == driver.__name__
        and not name.startswith("_")
    ]


@pytest.mark.parametrize("error", driver_classes(), ids=lambda c: c.__name__)
def test_every_error_class_of_the_driver_is_in_the_table(error: type[Exception]) -> None:
    assert error in TABLE


def test_the_table_has_nothing_that_the_driver_does_not() -> None:
    assert set(TABLE) == set(driver_classes())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (driver.ServerSelectionTimeoutError("no"), Verdict.NOTHING),
        (driver.WaitQueueTimeoutError("no"), Verdict.NOTHING),
        (driver.AutoReconnect("no"), Verdict.UNKNOWN),
        (driver.NetworkTimeout("no"), Verdict.UNKNOWN),
        (driver.NotPrimaryError("no"), Verdict.UNKNOWN),
        (driver._OperationCancelled("no"), Verdict.UNKNOWN),
        (driver.WriteConcernError("no", 64), Verdict.UNKNOWN),
        (driver.WTimeoutError("no", 64), Verdict.UNKNOWN),
        (driver.ExecutionTimeout("no", 50), Verdict.UNKNOWN),
        (driver.OperationFailure("no", 189), Verdict.UNKNOWN),
        (
            driver.OperationFailure("no", 1, {"errorLabels": ["RetryableWriteError"]}),
            Verdict.UNKNOWN,
        ),
        (driver.OperationFailure("no", 18), Verdict.REFUSED),
        (driver.OperationFailure("no", 13), Verdict.REFUSED),
        (driver.OperationFailure("no", 9), Verdict.DEFECT),
        (driver.OperationFailure("no"), Verdict.DEFECT),
        (driver.DuplicateKeyError("no", 11000), Verdict.DUPLICATE),
        (driver.WriteError("no", 17419), Verdict.TOO_LARGE),
        (driver.DocumentTooLarge("no"), Verdict.TOO_LARGE),
        (driver.BulkWriteError({"writeErrors": [{"code": 11000}]}), Verdict.DUPLICATE),
        (
            driver.BulkWriteError(
                {"writeErrors": [{"code": 11000}], "writeConcernErrors": [{"code": 64}]}
            ),
            Verdict.UNKNOWN,
        ),
        (driver.BulkWriteError({"writeErrors": []}), Verdict.DEFECT),
        (driver.ConfigurationError("no"), Verdict.REFUSED),
        (driver.ConfigurationError("Sessions are not supported by this ..."), Verdict.UNKNOWN),
        (driver.InvalidOperation("no"), Verdict.DEFECT),
        (driver.InvalidOperation("Cannot use AsyncMongoClient after close"), Verdict.CLOSED),
        (NotOpen(), Verdict.CLOSED),
        (RuntimeError("Cannot use AsyncMongoClient in different event loop"), Verdict.REFUSED),
        (RuntimeError("anything else"), Verdict.DEFECT),
        (KeyError("x"), Verdict.DEFECT),
        (LostReply(), Verdict.UNKNOWN),
        (Unsettled(), Verdict.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
def test_an_error_says_whether_to_try_again(error: Exception, expected: Verdict) -> None:
    assert verdict(error) is expected
    assert is_transient(error) == (expected in (Verdict.NOTHING, Verdict.UNKNOWN))


def test_a_write_that_nobody_took_has_not_happened() -> None:
    error = translated(driver.ServerSelectionTimeoutError("x"), "write", unknown=False)
    assert isinstance(error, Unavailable)


def test_a_write_that_may_have_happened_once_is_unknown_whatever_came_last() -> None:
    error = translated(driver.ServerSelectionTimeoutError("x"), "write", unknown=True)
    assert isinstance(error, WriteUnknown)


@pytest.mark.parametrize("unknown", [True, False])
def test_a_store_that_was_closed_is_no_defect(unknown: bool) -> None:
    for error in (NotOpen(), driver.InvalidOperation("Cannot use AsyncMongoClient after close")):
        told = translated(error, "write", unknown=unknown)
        assert type(told) is (WriteUnknown if unknown else Unavailable)
        assert "closed" in str(told)


def test_only_a_closed_store_that_was_met_first_says_that_nothing_was_sent() -> None:
    assert not may_be_done(NotOpen(nothing_sent=True))
    assert may_be_done(NotOpen())
    assert may_be_done(driver.InvalidOperation("Cannot use AsyncMongoClient after close"))
    assert may_be_done(driver.AutoReconnect("x"))
    assert not may_be_done(driver.ServerSelectionTimeoutError("x"))


def test_refused_credentials_are_a_setting_that_can_be_fixed() -> None:
    error = translated(driver.OperationFailure("secret", 18), "open")
    assert isinstance(error, ConfigError)
    assert "credentials" in str(error)
    assert "secret" not in str(error)


def test_a_document_that_is_too_large_can_never_be_stored() -> None:
    assert isinstance(translated(driver.DocumentTooLarge("x"), "write"), NotStorable)


def test_a_defect_is_not_translated() -> None:
    assert translated(driver.InvalidOperation("x"), "write") is None


SET = 'No replica set members available for replica set name "rsX"'
OTHER_SET = "client is configured to connect to a replica set named 'a' but this node belongs to a"
UNREACHABLE = {
    "h:1: [Errno 111] Connect call failed": "no MongoDB server answered at h:1, h:2",
    "No servers found yet": "no MongoDB server answered at h:1, h:2",
    "h:1: [Errno -2] Name or service not known": "a host name was not resolved among h:1, h:2",
    "h:1: [Errno 11001] getaddrinfo failed": "a host name was not resolved among h:1, h:2",
    SET: "no member of the replica set that replicaSet= names answered at h:1, h:2",
    f"{OTHER_SET} set named 'b'": "no member of the replica set that replicaSet= names answered",
    "No primary available for writes": "the replica set has no primary now among h:1, h:2",
    "SSL handshake failed: h:1:": "the TLS handshake failed at h:1, h:2",
}


@pytest.mark.parametrize("text", UNREACHABLE)
def test_what_is_unreachable_is_told_apart_and_names_the_hosts(text: str) -> None:
    error = translated(
        driver.ServerSelectionTimeoutError(f"{text}, mongodb://u:secret@h"),
        "open",
        hosts="h:1, h:2",
    )
    assert isinstance(error, Unavailable)
    assert UNREACHABLE[text] in error.reason
    assert error.remedy
    assert "secret" not in str(error)


def test_a_seed_list_that_dns_does_not_know_is_unavailable() -> None:
    gone = driver.ConfigurationError("The DNS query name does not exist: _mongodb._tcp.x.")
    error = translated(gone, "open", hosts="x")
    assert isinstance(error, Unavailable)
    assert "not resolved among x" in error.reason
