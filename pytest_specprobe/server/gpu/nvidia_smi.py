"""What the driver says of the GPUs: the one reader of ``nvidia-smi``, which creates no CUDA context."""

import shutil
import subprocess
from dataclasses import dataclass

_PATIENCE_S = 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver names it; memory in MiB."""

    name: str
    memory_mib: int
    driver: str


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine; empty without a driver, and without those whose memory it does not say."""
    found = rows("--query-gpu=name,memory.total,driver_version", cells=3)
    return tuple(Gpu(name, int(memory), driver) for name, memory, driver in found if memory.isdigit())


def gpu_memory_mib() -> dict[str, int]:
    """Return the memory in use per GPU (uuid -> MiB); empty where there is none."""
    return {uuid: int(used) for uuid, used in rows("--query-gpu=uuid,memory.used", cells=2) if used.isdigit()}


def gpu_indices() -> dict[int, str]:
    """Return the uuid of each GPU by the driver's index; empty where there is none."""
    return {int(index): uuid for index, uuid in rows("--query-gpu=index,uuid", cells=2) if index.isdigit()}


def rows(query: str, *, cells: int) -> tuple[tuple[str, ...], ...]:
    """Return the rows of an answer that have so many cells; none where there is no program, or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        answer = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = (tuple(cell.strip() for cell in line.split(",")) for line in answer.stdout.splitlines())
    return tuple(row for row in found if len(row) == cells)
