"""A MongoDB in memory, for tests: nothing outlives its process."""

from __future__ import annotations

from typing import Any

from durable_adk.errors import ConfigError


def memory_client() -> Any:
    """A client of a new, empty MongoDB in memory (mongomock-motor's).

    Raises:
        ConfigError: mongomock-motor is not installed.
    """
    # Imported here: only tests need it, and it is an optional dependency.
    try:
        import mongomock_motor
    except ModuleNotFoundError as error:
        raise ConfigError(
            "memory_client()", "mongomock-motor is missing", "Install durable-adk[testing]."
        ) from error
    return mongomock_motor.AsyncMongoMockClient()
