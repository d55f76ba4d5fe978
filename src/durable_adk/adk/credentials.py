"""Credentials that a user gave: what ADK makes of an answer, once.

ADK exchanges the code of a sign-in as soon as the answer is there, in front of the tool or node
that asked. A code is good for one exchange: its result is recorded, encrypted as everything is.
Inside a tool's body an exchange is a part of that body.
"""

from __future__ import annotations

from typing import Any

from durable_adk.adk import recorded
from durable_adk.adk.scope import current

EXCHANGE = "adk_exchange_credential"


def wrap_exchange(adk_exchange: Any) -> Any:
    """The durable ``AuthHandler.exchange_auth_token``; outside an attempt it is ADK's."""

    async def exchange_auth_token(self: Any) -> Any:
        scope = current()
        if scope is None or scope.kind not in ("node", "agent"):
            return await adk_exchange(self)

        async def exchange(_asked: Any) -> Any:
            return await adk_exchange(self)

        return await recorded.step(EXCHANGE, exchange, self.auth_config)

    return exchange_auth_token
