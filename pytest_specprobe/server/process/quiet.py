"""Why a booting server is quiet: its processes compile kernels, or its GPUs wait for each other.

Invariant: a compiler counts only if it is a living process of this boot, known by the name of its program. What a
wait is put down to is read from those processes and from the log's last lines; without either nothing is said.
"""

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

FUSION_FLAG = "--enforce-disable-flashinfer-allreduce-fusion"
CUSTOM_FLAG = "--disable-custom-all-reduce"
# The first that runs is named: who starts the others comes before them.
_COMPILERS = ("nvcc", "cicc", "ptxas", "cc1plus", "ninja")
_COMMAND = 1 << 16  # bytes of a compiler's command line
# FlashInfer compiles each of its modules in a folder of that name.
_MODULE = re.compile(rb"flashinfer/[^\0\s]{0,300}?/(?:cached_ops|generated)/(\w+)")
_FUSION = re.compile(rb"trtllm_(?:\w+_)?(?:comm|allreduce)")
_SYMMETRIC = "[SymmDeviceMemory]"  # FlashInfer's, of the memory that the fusion works in; its kernels come next
_COLLECTIVE = re.compile(
    r"\[SymmDeviceMemory\]|ProcessGroupNCCL|c10d_logger|sglang is using nccl|\bNCCL (?:INFO|version)|\[AR\] "
    r"|Init torch distributed begin|Capture .{0,200}?graph begin|Capturing (?:batches|num tokens)"
)
_LAST_LINES = 6
_QUIET_S = 60.0  # of a collective: loading, capturing and connecting are silent for less


@dataclass(frozen=True, slots=True)
class Compilation:
    """The compilers that run below a boot.

    ``programs`` are their names, each once; empty: nothing compiles. ``modules`` are the FlashInfer modules that
    their command lines name, and ``fusion`` tells whether its all-reduce fusion is among them.
    """

    programs: tuple[str, ...] = ()
    modules: frozenset[str] = frozenset()
    fusion: bool = False

    @property
    def running(self) -> bool:
        """Tell whether anything compiles."""
        return bool(self.programs)


@dataclass(frozen=True, slots=True)
class Wait:
    """What a quiet boot waits for: ``said`` while it lasts, ``fix`` (the next step) once patience has ended."""

    said: str
    fix: str


def compilation(pids: Iterable[int]) -> Compilation:
    """Return what the processes of a boot compile at this moment; one that ends while it is read is left out."""
    programs: set[str] = set()
    commands = []
    for pid in pids:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            if name in _COMPILERS:
                programs.add(name)
                with Path(f"/proc/{pid}/cmdline").open("rb") as file:
                    commands.append(file.read(_COMMAND))
    return Compilation(
        programs=tuple(name for name in _COMPILERS if name in programs),
        modules=frozenset(name.decode() for command in commands for name in _MODULE.findall(command)),
        fusion=any(map(_FUSION.search, commands)),
    )


def wait_of(
    compiles: Compilation, *, lines: Sequence[str], gpus: int, quiet_s: float, server_args: Sequence[str]
) -> Wait | None:
    """Return what a boot waits for; None where nothing tells.

    :param lines: the log's last lines.
    :param gpus: how many GPUs of this machine the server takes.
    :param quiet_s: how long the log has not grown.
    :param server_args: the profile's flags; none that is there already is named again.
    """
    last = list(lines)[-_LAST_LINES:]
    if compiles.running:
        return _compiling(compiles, last, server_args)
    if gpus > 1 and quiet_s >= _QUIET_S and any(map(_COLLECTIVE.search, last)):
        return _collective(server_args)
    return None


def _compiling(compiles: Compilation, last: Sequence[str], server_args: Sequence[str]) -> Wait:
    # The log tells only where the compilers' own command lines do not.
    unnamed = not compiles.modules and any(_SYMMETRIC in line for line in last)
    said = f"compiling kernels: {compiles.programs[0]}"
    longer = "raise --specprobe-boot-timeout: what was compiled is kept for the next boot"
    if not (compiles.fusion or unnamed) or FUSION_FLAG in server_args:
        return Wait(said, longer)
    return Wait(
        f"{said} (FlashInfer's all-reduce fusion; {FUSION_FLAG} does without it)",
        f"add {FUSION_FLAG} to the target's server_args, since FlashInfer's all-reduce fusion is what compiles; "
        f"or {longer}",
    )


def _collective(server_args: Sequence[str]) -> Wait:
    without = "" if CUSTOM_FLAG in server_args else f"add {CUSTOM_FLAG} to the target's server_args; "
    return Wait(
        f"perhaps its GPUs wait for each other (NCCL): {'' if not without else f'{CUSTOM_FLAG}, '}NCCL_DEBUG=INFO",
        f"its GPUs may wait for each other in a collective: {without}set NCCL_DEBUG=INFO and read what NCCL says "
        "in the log; raise --specprobe-boot-timeout if it is only slow",
    )
