"""The port of a server that we boot: held from the moment it is chosen, and proved to be answered by our own process.

A port stands in a command line, which every user of a machine can read, for as long as SGLang imports: 20 to 30
seconds in which another program can take it. Holding keeps accidents away; only the look at who listens keeps a
forger away, who then never sees the key.
"""

import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from pytest_specprobe.errors import PortTaken, ServerError
from pytest_specprobe.server.closing import Closing
from pytest_specprobe.server.gpu.holders import port_holders
from pytest_specprobe.server.process.listeners import Listener, listeners, sockets_of

LOOPBACK = "127.0.0.1"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_ATTEMPTS = 200


class HeldPort(Closing):
    """A port of loopback that is bound and not listened on, so that the kernel gives it to nobody by chance.

    A program that sets SO_REUSEADDR, as every HTTP server does, can still bind it: the server itself must.
    """

    def __init__(self, held: socket.socket) -> None:
        self._held = held
        self.number: int = held.getsockname()[1]

    @classmethod
    def take(cls) -> "HeldPort":
        """Choose a port outside the range that the kernel hands out to clients, and hold it.

        :raises PortTaken: if none is free.
        """
        for number in _candidates():
            held = socket.socket()
            try:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind((LOOPBACK, number))
            except OSError:
                held.close()
            else:
                return cls(held)
        raise PortTaken("no port is free", culprit="machine", fix="look at who holds so many: ss -tlnp")

    def close(self) -> None:
        """Give the port back."""
        self._held.close()


class OwnPort:
    """Makes sure that the listener on a port is a process of one boot.

    Invariant: ``require`` passes only while the socket that ``answered`` saw in a process of the boot is still there.
    As long as it listens the kernel gives the port to no other process, so a connection made in between ends at it.

    :param tree: returns the pids of that boot.
    """

    def __init__(self, number: int, *, tree: Callable[[], Collection[int]]) -> None:
        self.number = number
        self._tree = tree
        self._seat: tuple[str, str] | None = None

    def follow(self, tree: Callable[[], Collection[int]]) -> None:
        """Expect another boot from now on: what was seen of the last one counts no more."""
        self._tree, self._seat = tree, None

    def answered(self) -> bool:
        """Look at every listener on the port; return whether the boot listens, False if nothing does.

        :raises PortTaken: if one of them is not of this boot.
        :raises ServerError: if the kernel does not tell.
        """
        here = self._listeners()
        own = sockets_of(self._tree())
        strangers = {one.inode for one in here} - set(own)
        # A socket of the boot may have been closed between the two looks; one that is still listened on is another's.
        strange = [one for one in self._listeners() if one.inode in strangers] if strangers else []
        if strange:
            self._seat = None
            raise _taken(self.number, strange, own.values())
        self._seat = _seat(own[here[0].inode], here[0].inode) if here and not strangers else None
        return self._seat is not None

    def require(self) -> None:
        """Pass while the socket that ``answered`` saw is still there: one readlink.

        :raises PortTaken: if another process listens.
        :raises ServerError: if the boot listens no more, or was never seen to.
        """
        if self._seat is not None and _reads(self._seat[0]) == self._seat[1]:
            return
        self.answered()
        self._seat = None
        raise ServerError(
            f"the process that served port {self.number} listens there no more",
            culprit="machine",
            fix="look at the server's log; a server that died says why there",
        )

    def _listeners(self) -> list[Listener]:
        return [one for one in listeners(self.number) if one.answers_on_loopback]


def _taken(number: int, strangers: list[Listener], pids: Collection[int]) -> PortTaken:
    holders = [holder for holder in port_holders(number) if holder.pid not in set(pids)]
    said = "; ".join(map(str, holders)) or ", ".join(f"a process of uid {one.uid}" for one in strangers)
    return PortTaken(
        f"another process listens on the server's port: {said}",
        culprit="machine",
        fix="run again, and a new port is picked; if it happens again, end that process or use a machine of your own",
    )


def _candidates() -> Iterator[int]:
    low, high = _ephemeral()
    outside = [*range(_LOWEST, low), *range(high + 1, 65536)]
    # 0 lets the kernel choose, where its own range leaves nothing.
    yield from secrets.SystemRandom().sample(outside, min(_ATTEMPTS, len(outside)))
    yield 0


def _ephemeral() -> tuple[int, int]:
    try:
        low, high = map(int, _EPHEMERAL.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return 32768, 60999
    return low, high


def _seat(pid: int, inode: int) -> tuple[str, str] | None:
    """Return the file descriptor of a process that holds a socket: its path, and what it reads as."""
    text = f"socket:[{inode}]"
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return next(((entry.path, text) for entry in entries if _reads(entry.path) == text), None)
    except OSError:
        return None


def _reads(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None
