"""A real MCP server on stdio. Arguments: a ledger, and a file whose being there ends it at once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

if __name__ == "__main__" and Path(sys.argv[2]).exists():
    sys.exit("the desk is closed")  # before the import, which takes a second

from mcp.server import MCPServer

server = MCPServer("desk")


def note(*what: object) -> None:
    handle = os.open(sys.argv[1], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(handle, (json.dumps(what) + "\n").encode())
    finally:
        os.close(handle)


@server.tool()
async def weigh(thing: str) -> str:
    """Weigh a thing."""
    note("mcp", "weigh", thing)
    await asyncio.sleep(0.005)
    return f"{thing} weighs {len(thing)}"


@server.tool()
def send(thing: str) -> str:
    """Send a thing away."""
    note("mcp", "send", thing)
    return f"sent {thing}"


@server.tool()
def lose(thing: str) -> str:
    """Fail."""
    note("mcp", "lose", thing)
    raise ValueError(f"lost {thing}")


if __name__ == "__main__":
    server.run("stdio")
