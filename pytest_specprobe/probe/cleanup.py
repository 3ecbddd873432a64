"""Make room for a probe: end what this tool left behind, and name, never touch, whoever else is in the way."""

import os
from collections.abc import Iterator
from pathlib import Path

from pytest_specprobe.profiles import Profile
from pytest_specprobe.secret import Variables
from pytest_specprobe.server.gpu import holders
from pytest_specprobe.server.gpu.holders import Holder
from pytest_specprobe.server.gpu.selection import visible_gpus
from pytest_specprobe.server.process import ownership
from pytest_specprobe.server.spec import values_of
from pytest_specprobe.settings import Device
from pytest_specprobe.staging.prune import prune

_PORT_FLAGS = ("--nccl-port", "--dist-init-addr", "--nccl-init-addr")


def clear(profile: Profile, *, device: Device, cache: Path) -> Iterator[str]:
    """End leftover servers, remove unused staged directories, and say what was done and who holds what is needed.

    A leftover is a server of this user whose run is gone, known by recorded identity. Ports: a server's own is a free
    one each time; looked at are those that the target's ``server_args`` name.

    :param device: where servers were asked to run; on a CPU nobody's GPU memory is in the way.
    """
    for one in ownership.reap():
        owned = one.owned
        how = f"would not end (processes {list(one.left)})" if one.left else "ended"
        yield f"a server left by a run that is gone {how}: {owned.label}, pid {owned.pid}, port {owned.port}"
    alive = ownership.servers()
    for path in prune(cache, in_use={owned.drafter for owned in alive if owned.drafter}):
        yield f"removed a staged directory that no run uses: {path}"
    ours = {process.pid: owned for owned in alive for process in ownership.processes_of(owned)}
    for holder in (*_on_gpus(profile, device), *_on_ports(profile)):
        owner = ours.get(holder.pid or -1)
        who = f"a server of run PID {owner.owner_pid}" if owner else "not of this tool, left alone"
        yield f"held ({who}): {holder}"


def _on_gpus(profile: Profile, device: Device) -> tuple[Holder, ...]:
    if device == "cpu" or "cuda" not in profile.target.devices:
        return ()
    visible = visible_gpus(Variables(os.environ))
    return tuple(h for h in holders.gpu_holders() if not visible or h.what.rpartition(" of ")[2] in visible)


def _on_ports(profile: Profile) -> Iterator[Holder]:
    for value in values_of(profile.target.server_args, *_PORT_FLAGS):
        port = value.rpartition(":")[2]
        if port.isdigit():
            yield from holders.port_holders(int(port))
