"""``specprobe servers`` and ``specprobe reap``: what this tool has started here, and what of it was left behind."""

import argparse
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.foreign import json_text, printable

if TYPE_CHECKING:
    from pytest_specprobe.server.gpu.holders import Holder
    from pytest_specprobe.server.process.ownership import Owned


def add(verbs: Verbs) -> None:
    """Add the verbs."""
    servers = verbs.add_parser(
        "servers",
        help="list this tool's servers on this machine, live and left over",
        description="List the servers that this user's runs have started on this machine. A leftover is one whose "
        "run is gone. Nothing is changed. Exit 0.",
    )
    servers.add_argument("--json", action="store_true", help="print JSON")
    servers.set_defaults(run=_servers)
    reap = verbs.add_parser(
        "reap",
        help="end servers whose run is gone, and remove their staged files",
        description="End every server of this user that was started by this tool and whose run is gone, known by a "
        "record that no other user can have written and by its boot's random marker; remove staged directories that "
        "no run uses any more. A live run's server is not a leftover. Others' processes are named, never touched. "
        "Exit 0, 1 if something would not end.",
    )
    reap.add_argument("--json", action="store_true", help="print JSON")
    reap.set_defaults(run=_reap)


def _servers(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.server.process import ownership

    found = ownership.servers()
    if arguments.json:
        print(json_text({"schema": 1, "servers": [_row(owned) for owned in found]}, indent=2))
    elif found:
        print(printable("\n".join(line for owned in found for line in _lines(owned))))
        if any(not owned.owner_lives for owned in found):
            print("specprobe reap ends the leftovers")
    else:
        print("no server of this tool runs here")
    return 0


def _reap(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.server.gpu import holders
    from pytest_specprobe.server.process import ownership
    from pytest_specprobe.staging.cache import staged_cache
    from pytest_specprobe.staging.prune import prune

    ended = ownership.reap()
    alive = ownership.servers()
    in_use = {owned.drafter for owned in alive if owned.drafter}
    pruned = prune(staged_cache(), in_use=in_use)
    own = {process.pid for owned in alive for process in ownership.processes_of(owned)}
    others = [holder for holder in holders.gpu_holders() if holder.pid not in own]
    if arguments.json:
        document = {
            "schema": 1,
            "ended": [{**_row(one.owned), "left": list(one.left)} for one in ended],
            "removed": [str(path) for path in pruned],
            "others": [_holder(holder) for holder in others],
        }
        print(json_text(document, indent=2))
    else:
        for one in ended:
            how = f"would not end: processes {list(one.left)}" if one.left else "ended"
            told = f"{how}: {one.owned.label} pid {one.owned.pid} port {one.owned.port} log {one.owned.log_path}"
            print(printable(told))
        for path in pruned:
            print(printable(f"removed: {path}"))
        for holder in others:
            print(printable(f"left alone, not ours: {holder}"))
        if not ended and not pruned:
            print("no leftover of this tool here")
    return int(any(one.left for one in ended))


def _row(owned: "Owned") -> dict[str, Any]:
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
    row = _row(owned)
    gpus = ", ".join(owned.gpus) or owned.device or "unknown device"
    yield f"{row['state']:<9} {row['profile']} ({row['what']})  pid {row['pid']}  {row['url']}  {gpus}"
    yield f"{'':<9} since {row['started']}, by run {row['owner_pid']}, log {row['log']}"


def _when(owned: "Owned") -> str:
    return datetime.fromtimestamp(owned.created).astimezone().isoformat(timespec="seconds")


def _holder(holder: "Holder") -> dict[str, Any]:
    return {"pid": holder.pid, "user": holder.user, "command": holder.command, "what": holder.what}
