"""``specprobe reap``: end the servers whose run is gone."""

import argparse
from typing import TYPE_CHECKING, Any

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.cli.servers import row
from pytest_specprobe.foreign import json_text, printable

if TYPE_CHECKING:
    from pytest_specprobe.server.gpu.holders import Holder


def add(verbs: Verbs) -> None:
    """Add the verb."""
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
            "ended": [{**row(one.owned), "left": list(one.left)} for one in ended],
            "removed": [str(path) for path in pruned],
            "others": [_holder(holder) for holder in others],
        }
        print(json_text(document, indent=2))
    else:
        for one in ended:
            how = f"would not end: processes {list(one.left)}" if one.left else "ended"
            line = f"{how}: {one.owned.label} pid {one.owned.pid} port {one.owned.port} log {one.owned.log_path}"
            print(printable(line))
        for path in pruned:
            print(printable(f"removed: {path}"))
        for holder in others:
            print(printable(f"left alone, not ours: {holder}"))
        if not ended and not pruned:
            print("no leftover of this tool here")
    return int(any(one.left for one in ended))


def _holder(holder: "Holder") -> dict[str, Any]:
    return {"pid": holder.pid, "user": holder.user, "command": holder.command, "what": holder.what}
