"""Credentials that a user gave: what ADK makes of an answer in front of a node, once.

A sign-in's code is good for one exchange. Where ADK makes it before the node that asked is entered,
its result is recorded, encrypted as everything is. A tool exchanges its code in its own body, and
is run again as a whole when it is cut off; ADK then asks the user again.
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
