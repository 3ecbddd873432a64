"""The GPU memory of one server: what it took, and whether the driver has given it back.

Invariant: memory of others is never waited for, be it another server of this probe, which stays up, or a stranger's.
"""

from collections.abc import Iterable

from pytest_specprobe.server.gpu import holders
from pytest_specprobe.server.gpu.nvidia_smi import gpu_memory_mib

_SLACK_MIB = 512


class GpuMemory:
    """Watches the GPUs from before a server's launch until after its end; sizes in MiB.

    Where the driver names the processes that hold memory, those of the server must be gone. In a container it often
    names none; then the level must fall to what it was before the launch, or by what the server took, whichever
    leaves more.
    """

    def __init__(self) -> None:
        """Note the level before the launch; without a driver everything below is empty."""
        self._before = gpu_memory_mib()
        self._took: dict[str, int] = {}
        self._allowed = self._before
        self._pids: frozenset[int] = frozenset()

    def came_up(self) -> None:
        """Note what the server took; call it when it is ready."""
        now = gpu_memory_mib()
        self._took = {uuid: now.get(uuid, before) - before for uuid, before in self._before.items()}

    def leaving(self, pids: Iterable[int]) -> None:
        """Note who holds what just before the server is stopped; ``pids`` are its processes."""
        if not self._before:
            return
        ours = set(pids)
        self._pids = frozenset(h.pid for h in holders.gpu_holders() if h.pid is not None and h.pid in ours)
        now = gpu_memory_mib()
        self._allowed = {
            uuid: max(before, now.get(uuid, before) - self._took.get(uuid, 0))
            for uuid, before in self._before.items()
        }

    def held(self) -> str:
        """Say what has not come back yet; empty if all has."""
        if self._pids:
            return "; ".join(str(holder) for holder in holders.gpu_holders() if holder.pid in self._pids)
        now = gpu_memory_mib() if self._before else {}
        return ", ".join(
            f"{uuid}: {now[uuid]} MiB, {allowed} expected"
            for uuid, allowed in self._allowed.items()
            if now.get(uuid, 0) > allowed + _SLACK_MIB
        )
