"""Who can reach a server, and whose code it may run: pure checks on what it says and listens on."""

from pytest_specprobe.findings import Finding, finding
from pytest_specprobe.server.http.client import is_loopback
from pytest_specprobe.server.http.info import ServerInfo
from pytest_specprobe.server.process.listeners import Listener
from pytest_specprobe.server.spec import ServerSpec


def reachable(
    info: ServerInfo, spec: ServerSpec, *, vouched: bool, sockets: tuple[Listener, ...] | None
) -> tuple[Finding, ...]:
    """Return the findings on address, sockets and remote code of one server.

    :param vouched: whether it is owned, or held by ``specprobe serve``; of any other these are its owner's choice.
    :param sockets: what the processes of a server that is owned or vouched for listen on; None for any other.
    """
    return _host(info, vouched=vouched), _sockets(info, sockets), _remote_code(info, spec, vouched=vouched)


def _host(info: ServerInfo, *, vouched: bool) -> Finding:
    seen = info.settings.get("host")
    return finding(
        "proof.host",
        passed=isinstance(seen, str) and is_loopback(seen),
        skipped=not vouched or seen is None,
        culprit="launch-flags",
        seen=_told(seen, vouched=vouched),
        expected="a loopback address",
        why="On any other address every machine of the network reaches the server while it runs.",
        fix="take what changes the address out of server_args and of the environment",
    )


def _remote_code(info: ServerInfo, spec: ServerSpec, *, vouched: bool) -> Finding:
    seen = info.settings.get("trust_remote_code")
    return finding(
        "proof.remote-code",
        passed=seen is spec.trust_remote_code,
        skipped=not vouched or seen is None,
        culprit="launch-flags",
        seen=_told(seen, vouched=vouched),
        expected=f"trust_remote_code {spec.trust_remote_code}, as the target's profile says",
        why="A server that trusts remote code runs the Python files of its checkpoints.",
        fix="say trust_remote_code in the target's profile, and nowhere else",
    )


def _told(seen: object, *, vouched: bool) -> str:
    if not vouched:
        return "not held: another's server"
    return "nothing: the server does not say" if seen is None else str(seen)[:80]


def _sockets(info: ServerInfo, sockets: tuple[Listener, ...] | None) -> Finding:
    http = info.effective().get("port")
    exposed = [one for one in sockets or () if not one.on_loopback]
    # A CUDA server's torch store listens on all interfaces, whatever it is told; it asks for no key, and serves none.
    elsewhere = [] if info.effective().get("device") == "cpu" else [one for one in exposed if one.port != http]
    wrong = [str(one) for one in exposed if one not in elsewhere]
    if sockets is not None and http is not None and http not in {one.port for one in sockets}:
        wrong.append(f"no socket of the server's on port {http}, where it says it is")
    if sockets is None:
        seen = "not visible (attached server)"
    elif wrong:
        seen = ", ".join(wrong)
    else:
        also = f"; {len(elsewhere)} more on other interfaces: {', '.join(map(str, elsewhere))}" if elsewhere else ""
        seen = f"{len(sockets) - len(elsewhere)} sockets on loopback{also}"
    return finding(
        "proof.sockets",
        passed=not wrong,
        skipped=sockets is None,
        culprit="launch-flags",
        seen=seen,
        expected="HTTP on loopback alone; of a CPU server every socket",
        why="Another machine could use the server while it is measured, or read what it is asked.",
        fix="take --host, and flags that open more ports, out of the server_args",
    )
