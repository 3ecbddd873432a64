"""Who listens on a TCP port of this machine, by the kernel's table of sockets and the processes that hold them.

A name, a port or a right answer never makes a server ours: the socket does.
"""

import contextlib
import ipaddress
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_specprobe.errors import ServerError

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening TCP socket of this network namespace.

    ``inode`` names the socket for as long as it lives; ``uid`` is the user that opened it.
    """

    address: str
    port: int
    inode: int
    uid: int

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        address = ipaddress.ip_address(self.address)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback

    @property
    def answers_on_loopback(self) -> bool:
        """Whether a connection to a loopback address may end at this socket."""
        address = ipaddress.ip_address(self.address)
        return self.on_loopback or (getattr(address, "ipv4_mapped", None) or address).is_unspecified

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def listeners(port: int | None = None) -> tuple[Listener, ...]:
    """Return every listening TCP socket, or those of one port.

    :raises ServerError: if the kernel does not tell.
    """
    try:
        tables = [table.read_text(encoding="ascii") for table in _TABLES if table.exists()]
        if not tables:
            raise FileNotFoundError(f"there is no {_TABLES[0]}")
        return tuple(listener for table in tables for listener in parse_table(table, port=port))
    except (OSError, ValueError) as error:
        raise ServerError(
            f"the kernel does not tell who listens on a port: {error}",
            culprit="machine",
            fix="mount /proc where the tests run; without it another program could pose as the server",
        ) from error


def parse_table(text: str, *, port: int | None = None) -> Iterator[Listener]:
    """Yield the listening sockets of a table in the form of ``/proc/net/tcp`` or ``/proc/net/tcp6``."""
    wanted = None if port is None else f":{port:04X}"
    for line in text.splitlines()[1:]:
        fields = line.split(None, 10)
        if len(fields) < 10 or fields[3] != _LISTEN or (wanted is not None and not fields[1].endswith(wanted)):
            continue
        address, _, number = fields[1].partition(":")
        yield Listener(_address(address), int(number, 16), inode=int(fields[9]), uid=int(fields[7]))


def sockets_of(pids: Collection[int]) -> dict[int, int]:
    """Return the inode of every socket that one of these processes holds, with its pid; gone processes hold none."""
    held: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    kind, _, inode = str(Path(entry.path).readlink()).partition(":[")
                    if kind == "socket":
                        held[int(inode.rstrip("]"))] = pid
    return held


def listeners_of(pids: Collection[int]) -> tuple[Listener, ...]:
    """Return the listening TCP sockets that these processes hold, by port.

    :raises ServerError: if the kernel does not tell.
    """
    held = sockets_of(pids)
    return tuple(sorted((one for one in listeners() if one.inode in held), key=lambda one: (one.port, one.address)))


def _address(text: str) -> str:
    # Words of 32 bits, each in the byte order of this machine.
    words = (int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8))
    return str(ipaddress.ip_address(b"".join(words)))
