"""Driver errors, read once: may the caller simply try again?

The only module that names a pymongo exception. ``TABLE`` has every class of
``pymongo.errors``; a test fails when the driver grows one that is not in it.
"""

from __future__ import annotations

import enum
from typing import Final

from pymongo import errors as driver

from durable_adk.errors import ConfigError, DurableError, NotStorable, Unavailable, WriteUnknown


class Verdict(enum.Enum):
    """What a driver error says about the operation that raised it."""

    NOTHING = "no server took it"
    UNKNOWN = "it may have been done"
    DUPLICATE = "the key is taken"
    REFUSED = "the server or the driver will not do it as configured"
    TOO_LARGE = "the document is over the limit of MongoDB"
    CLOSED = "there is no client any more"
    DEFECT = "an error in this package, or in the server: not translated"


class LostReply(Exception):
    """A fault point of a test: the write was done and nobody was told."""


class NotOpen(ConfigError):
    """There is no client: never opened, or closed while the call was under way.

    Attributes:
        nothing_sent: The operation had not begun.
    """

    def __init__(self, *, nothing_sent: bool = False) -> None:
        super().__init__("store", "is not open", "Await open() first.")
        self.nothing_sent = nothing_sent


class Unsettled(Exception):
    """A duplicate that cannot be read yet: it may not be acknowledged by a majority."""


TABLE: Final[dict[type[Exception], Verdict]] = {
    driver.ServerSelectionTimeoutError: Verdict.NOTHING,
    driver.WaitQueueTimeoutError: Verdict.NOTHING,
    driver.ConnectionFailure: Verdict.UNKNOWN,
    driver.AutoReconnect: Verdict.UNKNOWN,
    driver.NetworkTimeout: Verdict.UNKNOWN,
    driver.NotPrimaryError: Verdict.UNKNOWN,
    driver.ExecutionTimeout: Verdict.UNKNOWN,
    # The primary did apply the write; only its majority is open.
    driver.WriteConcernError: Verdict.UNKNOWN,
    driver.WTimeoutError: Verdict.UNKNOWN,
    driver.CursorNotFound: Verdict.UNKNOWN,
    driver.DuplicateKeyError: Verdict.DUPLICATE,
    driver.ConfigurationError: Verdict.REFUSED,
    driver.InvalidURI: Verdict.REFUSED,
    driver.InvalidName: Verdict.REFUSED,
    driver.DocumentTooLarge: Verdict.TOO_LARGE,
    # Read by their code and their details, see ``verdict``.
    driver.OperationFailure: Verdict.DEFECT,
    driver.WriteError: Verdict.DEFECT,
    driver.BulkWriteError: Verdict.DEFECT,
    # Programming errors, and features that this package does not use.
    driver.PyMongoError: Verdict.DEFECT,
    driver.ProtocolError: Verdict.DEFECT,
    driver.ClientBulkWriteException: Verdict.DEFECT,
    driver.CollectionInvalid: Verdict.DEFECT,
    driver.EncryptedCollectionError: Verdict.DEFECT,
    driver.EncryptionError: Verdict.DEFECT,
    driver.InvalidOperation: Verdict.DEFECT,
}

_REFUSED_CODES = frozenset(
    {
        11,  # UserNotFound
        13,  # Unauthorized
        18,  # AuthenticationFailed
        67,  # CannotCreateIndex
        85,  # IndexOptionsConflict
        86,  # IndexKeySpecsConflict
        8000,  # Atlas: refused credentials
    }
)
_UNKNOWN_CODES = frozenset(
    {
        6,  # HostUnreachable
        7,  # HostNotFound
        50,  # MaxTimeMSExpired
        64,  # WriteConcernFailed
        89,  # NetworkTimeout
        91,  # ShutdownInProgress
        100,  # UnsatisfiableWriteConcern: members are missing now
        112,  # WriteConflict
        133,  # FailedToSatisfyReadPreference
        134,  # ReadConcernMajorityNotAvailableYet
        189,  # PrimarySteppedDown
        262,  # ExceededTimeLimit
        9001,  # SocketException
        10107,  # NotWritablePrimary
        11600,  # InterruptedAtShutdown
        11602,  # InterruptedDueToReplStateChange
        13435,  # NotPrimaryNoSecondaryOk
        13436,  # NotPrimaryOrSecondary
    }
)
_TOO_LARGE_CODES = frozenset({10334, 17419, 17420})
_DUPLICATE_CODES = frozenset({11000, 11001})


def _by_code(code: int | None) -> Verdict:
    if code in _DUPLICATE_CODES:
        return Verdict.DUPLICATE
    if code in _REFUSED_CODES:
        return Verdict.REFUSED
    if code in _UNKNOWN_CODES:
        return Verdict.UNKNOWN
    if code in _TOO_LARGE_CODES:
        return Verdict.TOO_LARGE
    return Verdict.DEFECT


def _of_bulk(error: driver.BulkWriteError) -> Verdict:
    if error.details.get("writeConcernErrors"):
        return Verdict.UNKNOWN
    write_errors = error.details.get("writeErrors") or [{}]
    return _by_code(write_errors[0].get("code"))


def verdict(error: Exception) -> Verdict:
    """Say what an error means, by the most specific class and then by its code."""
    match error:
        case LostReply() | Unsettled():
            return Verdict.UNKNOWN
        case NotOpen():
            return Verdict.CLOSED
        case driver.InvalidOperation() if "after close" in str(error):
            return Verdict.CLOSED
        case driver.BulkWriteError():
            return _of_bulk(error)
        case driver.OperationFailure():
            known = TABLE.get(type(error), Verdict.DEFECT)
            if known is not Verdict.DEFECT:
                return known
            if error.has_error_label("RetryableWriteError"):
                return Verdict.UNKNOWN
            return _by_code(error.code)
        case RuntimeError() if "event loop" in str(error):
            return Verdict.REFUSED
        case driver.ConfigurationError() if "Sessions are not supported" in str(error):
            # A connection made to a member in the middle of an election: it was neither primary
            # nor secondary, and PyMongo (4.20) takes that for a server without sessions. The
            # driver's own first try may have been sent.
            return Verdict.UNKNOWN
    for ancestor in type(error).__mro__:
        if ancestor in TABLE:
            return TABLE[ancestor]
    return Verdict.DEFECT


def is_transient(error: Exception) -> bool:
    """Whether the same operation may succeed when it is done again."""
    return verdict(error) in (Verdict.NOTHING, Verdict.UNKNOWN)


def may_be_done(error: Exception) -> bool:
    """Whether a write that ended so may have been done."""
    if isinstance(error, NotOpen):
        return not error.nothing_sent
    return verdict(error) in (Verdict.UNKNOWN, Verdict.CLOSED)


def translated(
    error: Exception, what: str, *, unknown: bool = False, hosts: str = ""
) -> DurableError | None:
    """Make of a driver error the one that a caller can act on, or None for a defect.

    Never repeats text of the driver: it may show parts of the connection string.

    Args:
        error: What the driver raised.
        what: The operation, as a subject.
        unknown: Whether the write may have been done by this or an earlier try.
        hosts: The servers that were asked, without credentials.
    """
    name = type(error).__name__
    match verdict(error):
        case Verdict.CLOSED if unknown:
            return WriteUnknown(
                what,
                "was not acknowledged before the store was closed",
                "Open it and make the same call again: that settles it.",
            )
        case Verdict.CLOSED:
            return Unavailable(
                what, "the store was closed, or never opened", "Open it and make the call again."
            )
        case Verdict.NOTHING | Verdict.UNKNOWN if unknown:
            return WriteUnknown(
                what, f"was not acknowledged ({name})", "Make the same call again: that settles it."
            )
        case Verdict.NOTHING | Verdict.UNKNOWN:
            return _unreachable(error, what, hosts)
        case Verdict.REFUSED if _is_unresolved(error):
            return _unreachable(error, what, hosts)
        case Verdict.REFUSED:
            return _refused(error, what)
        case Verdict.TOO_LARGE:
            return NotStorable(what, "makes a MongoDB document of more than 16 MB")
        case _:
            return None


_UNRESOLVED = (
    "Name or service not known",
    "Temporary failure in name resolution",
    "No address associated with hostname",
    "nodename nor servname",  # macOS
    "getaddrinfo failed",  # Windows
)
_OTHER_SET = ("No replica set members available for replica set name", "belongs to a set named")
_NO_PRIMARY = ("No primary available", "No replica set members match selector")


def _is_unresolved(error: Exception) -> bool:
    """Whether a host name of the connection string leads nowhere."""
    if isinstance(error, driver.ConfigurationError):
        return "DNS" in str(error)  # the seed list of mongodb+srv://
    return any(text in str(error) for text in _UNRESOLVED)


def _unreachable(error: Exception, what: str, hosts: str) -> Unavailable:
    """Why no server took an operation, by what the driver's text shows of it."""
    text, name = str(error), type(error).__name__
    at = f" at {hosts}" if hosts else ""
    among = f" among {hosts}" if hosts else ""
    if _is_unresolved(error):
        return Unavailable(
            what,
            f"a host name was not resolved{among}",
            "Correct the host in the connection string, or look at this machine's DNS.",
        )
    if any(part in text for part in _OTHER_SET):
        return Unavailable(
            what,
            f"no member of the replica set that replicaSet= names answered{at}",
            "Set replicaSet= to the name that rs.conf()._id shows on the server, or leave it out.",
        )
    if any(part in text for part in _NO_PRIMARY):
        return Unavailable(
            what,
            f"the replica set has no primary now{among}",
            "An election takes some seconds: try again, or look at rs.status().",
        )
    if "SSL handshake failed" in text:
        return Unavailable(
            what, f"the TLS handshake failed{at}", "Check tls= and the certificates on both sides."
        )
    return Unavailable(
        what,
        f"no MongoDB server answered{at} ({name})",
        "Check that MongoDB runs there and can be reached, then try again.",
    )


def _refused(error: Exception, what: str) -> ConfigError:
    if isinstance(error, RuntimeError):
        return ConfigError(
            "MongoDB client",
            "it belongs to another event loop",
            "Pass the connection string, or a client made on the loop that runs the app.",
        )
    code = getattr(error, "code", None)
    if code in (13, 18, 11, 8000):
        return ConfigError(
            what,
            f"MongoDB refused the credentials (code {code})",
            "Give the user the role readWrite on the database and check its password.",
        )
    detail = f"code {code}" if code is not None else type(error).__name__
    return ConfigError(what, f"MongoDB refused it ({detail})", "Check the connection settings.")
