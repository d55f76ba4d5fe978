from __future__ import annotations

import inspect

import pytest
from pymongo import errors as driver

from durable_adk.errors import ConfigError, NotStorable, Unavailable, WriteUnknown
from durable_adk.store.errors import (
    TABLE,
    LostReply,
    Unsettled,
    Verdict,
    is_transient,
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
        (driver.InvalidOperation("no"), Verdict.DEFECT),
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


def test_refused_credentials_are_a_setting_that_can_be_fixed() -> None:
    error = translated(driver.OperationFailure("secret", 18), "open")
    assert isinstance(error, ConfigError)
    assert "credentials" in str(error)
    assert "secret" not in str(error)


def test_a_document_that_is_too_large_can_never_be_stored() -> None:
    assert isinstance(translated(driver.DocumentTooLarge("x"), "write"), NotStorable)


def test_a_defect_is_not_translated() -> None:
    assert translated(driver.InvalidOperation("x"), "write") is None
