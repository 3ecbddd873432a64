"""``specprobe servers``: what this tool has started here, and what of it was left behind."""

import argparse
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.foreign import json_text, printable

if TYPE_CHECKING:
    from pytest_specprobe.server.process.ownership import Owned


def add(verbs: Verbs) -> None:
    """Add the verb."""
    servers = verbs.add_parser(
        "servers",
        help="list this tool's servers on this machine, live and left over",
        description="List the servers that this user's runs have started on this machine. A leftover is one whose "
        "run is gone. Nothing is changed. Exit 0.",
    )
    servers.add_argument("--json", action="store_true", help="print JSON")
    servers.set_defaults(run=_servers)


def _servers(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.server.process import ownership

    owned_servers = ownership.servers()
    if arguments.json:
        print(json_text({"schema": 1, "servers": [row(owned) for owned in owned_servers]}, indent=2))
    elif owned_servers:
        print(printable("\n".join(line for owned in owned_servers for line in _lines(owned))))
        if any(not owned.owner_lives for owned in owned_servers):
            print("specprobe reap ends the leftovers")
    else:
        print("no server of this tool runs here")
    return 0


def row(owned: "Owned") -> dict[str, Any]:
    """Return a server as one row of the JSON output."""
    return {
        "state": "live" if owned.owner_lives else "leftover",
        "profile": owned.label,
        "what": "drafter" if owned.drafter else "baseline" if owned.command else "server",
        "pid": owned.pid,
        "started": _when(owned),
        "url": f"http://127.0.0.1:{owned.port}",
        "port": owned.port,
        "device": owned.device,
        "gpus": list(owned.gpus),
        "owner_pid": owned.owner_pid,
        "log": owned.log_path,
    }


def _lines(owned: "Owned") -> Iterable[str]:
    fields = row(owned)
    gpus = ", ".join(owned.gpus) or owned.device or "unknown device"
    yield f"{fields['state']:<9} {fields['profile']} ({fields['what']})  pid {fields['pid']}  {fields['url']}  {gpus}"
    yield f"{'':<9} since {fields['started']}, by run {fields['owner_pid']}, log {fields['log']}"


def _when(owned: "Owned") -> str:
    return datetime.fromtimestamp(owned.created).astimezone().isoformat(timespec="seconds")
