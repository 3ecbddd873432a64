"""The server that answers is the one that was booted: another program on its port gets nothing, and is named."""

import contextlib
import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.errors import PortTaken, ServerError
from pytest_specprobe.secret import Secret
from pytest_specprobe.server import port as port_module
from pytest_specprobe.server.attach import attach
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.port import HeldPort, OwnPort
from pytest_specprobe.server.process import listeners as listeners_module
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.process.listeners import Listener, listeners, listeners_of, parse_table
from pytest_specprobe.server.spec import ServerSpec
from tests.support.forging import forging

MakeSpec = Callable[..., ServerSpec]
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ANY = str(ipaddress.IPv4Address(0))
KEY = Secret("a-key-that-no-other-program-may-see")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server


def number(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


def test_a_forger_on_the_port_gets_no_key_and_no_verdict(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with forging(tmp_path / "forger") as forger, pytest.raises(PortTaken) as caught:
        boot(fake_spec(late=5), log_path=tmp_path / "server.log", timeout_s=60, api_key=KEY)
    assert len(forger.ports) >= 3, "it took the port of each attempt"
    assert KEY.reveal().encode() not in forger.heard
    assert b"authorization" not in forger.heard.lower()
    assert "another process listens on the server's port" in caught.value.what
    assert "forger.py" in caught.value.what
    assert caught.value.culprit == "machine"
    assert ownership.servers() == ()


def test_a_program_that_takes_over_a_dead_servers_port_gets_no_key(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        port = server.port.number
        psutil.Process(server.pid).kill()
        while server.alive():
            time.sleep(0.02)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            with pytest.raises(PortTaken, match="another process listens"):
                server.client.server_info()
            other.settimeout(10)
            connection, _ = other.accept()
            with connection:
                connection.settimeout(10)
                assert connection.recv(65536) == b"", "the connection was closed without a byte"


def test_a_listener_that_came_before_the_server_is_not_taken_for_it(fake_spec: MakeSpec, tmp_path: Path) -> None:
    """A connection made to another program stays one, though the server listens by the time of the look."""
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        fresh = OwnPort(server.port.number, tree=lambda: (server.pid or 0,))
        with pytest.raises(ServerError, match="listens there no more"):
            fresh.require()
        assert fresh.answered()
        fresh.require()
        fresh.follow(lambda: (server.pid or 0,))
        with pytest.raises(ServerError):
            fresh.require()


def test_a_second_listener_on_the_port_is_named(fake_spec: MakeSpec, tmp_path: Path) -> None:
    """Where both allow it, the kernel gives each of two listeners a share of the connections."""
    with socket.socket() as one, socket.socket() as two:
        for server in (one, two):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(("127.0.0.1", 0 if server is one else number(one)))
            server.listen()
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(two.fileno(),))
        two.close()
        try:
            with pytest.raises(PortTaken, match=f"pid {child.pid} "):
                OwnPort(number(one), tree=lambda: (os.getpid(),)).answered()
            assert OwnPort(number(one), tree=lambda: (os.getpid(), child.pid)).answered()
        finally:
            child.kill()
            child.communicate()


def test_every_proof_looks_at_the_port_again(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        assert [one.port for one in server.sockets()] == [server.port.number]
        server.client.server_info()
        second = Listener("127.0.0.1", server.port.number, inode=2**40, uid=0)
        monkeypatch.setattr(port_module, "listeners", lambda port: (*listeners(port), second))
        with pytest.raises(PortTaken, match="another process listens"):
            server.sockets()
        with pytest.raises(PortTaken):
            server.client.server_info()


def test_attaching_to_a_recorded_server_refuses_another_on_its_port(
    fake_spec: MakeSpec, tmp_path: Path, listening: socket.socket
) -> None:
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        with attach(server.url, api_key=server.api_key) as attached:
            assert attached.vouched
            assert attached.sockets() == server.sockets()
            assert [one.port for one in server.sockets()] == [server.port.number]
        (record,) = ownership.records_dir().glob("*.json")
        fields = json.loads(record.read_text())
        record.write_text(json.dumps(fields | {"port": number(listening)}))
        with pytest.raises(PortTaken, match=f"another process listens .* pid {os.getpid()} "):
            attach(f"http://127.0.0.1:{number(listening)}", api_key=KEY)


def test_the_key_is_still_asked_for(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        assert httpx.get(f"{server.url}/server_info").status_code == 401


def test_a_held_port_is_given_to_nobody_by_chance_and_to_the_server_on_purpose() -> None:
    with HeldPort.take() as held:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", held.number))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", held.number))
            server.listen()
            with socket.create_connection(("127.0.0.1", held.number)):
                pass
        assert listeners(held.number) == ()


def test_ports_are_outside_the_range_that_the_kernel_gives_to_clients() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for _ in range(20):
        with HeldPort.take() as held:
            assert not low <= held.number <= high
            assert held.number >= 10_000


def test_two_ports_held_at_once_differ() -> None:
    with HeldPort.take() as one, HeldPort.take() as two:
        assert one.number != two.number


def test_a_suspended_servers_port_stays_held(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with boot(fake_spec(), log_path=tmp_path / "server.log", timeout_s=60) as server:
        server.suspend()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port.number))
        again = boot(fake_spec(), log_path=tmp_path / "again.log", timeout_s=60, again=server)
        assert again is server
        assert server.client.server_info().version == "0.0-fake"
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port.number))


@pytest.mark.parametrize(
    ("address", "loopback", "answers"),
    [
        ("127.0.0.1", True, True), ("127.8.8.8", True, True), (ANY, False, True), ("10.1.2.3", False, False),
        ("::1", True, True), ("::", False, True), ("::ffff:127.0.0.1", True, True), ("::ffff:0.0.0.0", False, True),
        ("2001:db8::1", False, False),
    ],
)  # fmt: skip
def test_which_addresses_a_loopback_connection_may_end_at(address: str, loopback: bool, answers: bool) -> None:
    one = Listener(address, 80, inode=1, uid=0)
    assert (one.on_loopback, one.answers_on_loopback) == (loopback, answers)


def test_the_kernels_table_is_read_as_psutil_reads_it(listening: socket.socket) -> None:
    with socket.socket(socket.AF_INET6) as six:
        six.bind(("::1", 0))
        six.listen()
        own = {(one.address, one.port) for one in listeners_of([os.getpid()])}
        wanted = {("127.0.0.1", number(listening)), ("::1", number(six))}
        assert wanted <= own
        everyone = {tuple(c.laddr) for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        assert {(one.address, one.port) for one in listeners()} == everyone


@given(st.lists(st.sampled_from(["0A", "0:", "0100007F:0050", "ZZ:YY", "0050", ":", "7", "x", "\n"]), max_size=24))
def test_any_table_is_read_or_is_a_value_error(words: list[str]) -> None:
    with contextlib.suppress(ValueError):
        for one in parse_table(HEADER + " ".join(words)):
            assert (one.address, one.port, one.inode, one.uid) == ("127.0.0.1", 80, 7, 7)


def test_a_table_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "tcp"
    broken.write_text(HEADER + "   0: 0100007F:0050 00000000:0000 0A 0:0 00:0 00000000     0        0 nine 1\n")
    for tables in ((tmp_path / "gone",), (broken,)):
        monkeypatch.setattr(listeners_module, "_TABLES", tables)
        with pytest.raises(ServerError, match="does not tell who listens") as caught:
            OwnPort(80, tree=lambda: ()).answered()
        assert caught.value.culprit == "machine"


def test_sockets_of_gone_processes_are_none() -> None:
    assert listeners_module.sockets_of([2**22 + 1]) == {}
