"""A process of TCP proxies in front of the members of a replica set.

``python -m tests.support.proxies FOLDER PORT...`` listens on one port for each member and passes
to the port in ``FOLDER/member-<n>/port`` (as ``mongo.sh --advertise`` leaves it). It prints the
port of its control socket, where each line is a command and is answered with ``ok``:

``pass N``      the usual
``cut N``       established connections are reset, new ones too
``freeze N``    nothing passes and nothing ends: a cable is pulled
``delay N S``   everything is S seconds late

It ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends RST


class Gate:
    """One member: what passes to it now, and the connections through it."""

    def __init__(self, port_file: Path) -> None:
        self.port_file = port_file
        self.state = "pass"
        self.delay_s = 0.0
        self.ends: set[End] = set()

    def set(self, state: str, delay_s: float = 0.0) -> None:
        self.state, self.delay_s = state, delay_s
        for end in list(self.ends):
            if state == "cut":
                end.reset()
            else:
                end.flow()


class End(asyncio.Protocol):
    """One side of a connection through a gate; what it receives goes to its ``peer``."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.peer: End | None = None
        self.transport: Any = None
        self.is_choked = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.gate.ends.add(self)
        if self.gate.state == "cut":
            self.reset()
        elif self.peer is None:
            transport.pause_reading()
            self.opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        while self.gate.state == "freeze":
            await asyncio.sleep(0.05)
        try:
            port = int(self.gate.port_file.read_text())
            _, peer = await asyncio.get_running_loop().create_connection(
                lambda: self._paired(), "127.0.0.1", port
            )
        except (OSError, ValueError):  # the member is down
            self.reset()
            return
        self.peer = peer
        self.flow()

    def _paired(self) -> End:
        peer = End(self.gate)
        peer.peer = self
        return peer

    def flow(self) -> None:
        """Read, unless frozen or the peer takes no more."""
        if self.transport is None or self.transport.is_closing() or self.peer is None:
            return
        if self.gate.state == "freeze" or self.peer.is_choked:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        assert self.peer is not None
        if self.gate.delay_s:
            asyncio.get_running_loop().call_later(self.gate.delay_s, self.peer.send, data)
        else:
            self.peer.send(data)

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.is_choked = True
        if self.peer is not None:
            self.peer.flow()

    def resume_writing(self) -> None:
        self.is_choked = False
        if self.peer is not None:
            self.peer.flow()

    def connection_lost(self, _error: Exception | None) -> None:
        self.gate.ends.discard(self)
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()

    def reset(self) -> None:
        held = self.transport.get_extra_info("socket")
        if held is not None and held.fileno() >= 0:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()


def _control(gates: list[Gate]) -> Callable[..., Any]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            state, number, *late = line.decode().split()
            gate = gates[int(number)]
            if state == "delay":
                gate.set("pass", float(late[0]))
            else:
                gate.set(state)
            writer.write(b"ok\n")
            await writer.drain()
        writer.close()

    return serve


async def main(folder: str, *ports: str) -> None:
    loop, parent = asyncio.get_running_loop(), os.getppid()
    gates = [Gate(Path(folder) / f"member-{n}" / "port") for n in range(len(ports))]
    for gate, port in zip(gates, ports, strict=True):
        await loop.create_server(
            lambda gate=gate: End(gate), "127.0.0.1", int(port), backlog=512, reuse_address=True
        )
    control = await asyncio.start_server(_control(gates), "127.0.0.1", 0)
    print(control.sockets[0].getsockname()[1], flush=True)
    while os.getppid() == parent:
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
