"""Environment and flags that turn a stock SGLang child into a CPU server that speculates.

The child gets an import overlay: a package named ``sgl_kernel`` made of plain torch operations, and a general
SGLang plug-in found through a ``dist-info`` folder beside it. Both are on the *child's* ``PYTHONPATH`` only, so
a user's installed ``sgl_kernel`` and every CUDA server are left as they are.
"""

import os
from collections.abc import Mapping
from pathlib import Path

SGLANG_VERSION = "0.5.23"
"""The one SGLang release whose internal CPU operations the overlay provides; a local suffix (+cpu) may follow."""

OVERLAY = Path(__file__).resolve().parent / "overlay"
"""Folder that goes first on the child's ``PYTHONPATH``."""


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set, on top of ``base``, for a child that serves on the CPU.

    ``base`` is the environment the child would get otherwise; it is read for ``PYTHONPATH`` (kept, after the
    overlay) and for the offline setting and the OpenMP settings, which are kept where the user chose them: a
    large target on a machine with many cores wants ``OMP_NUM_THREADS`` set.
    """
    path = os.pathsep.join(p for p in (str(OVERLAY), base.get("PYTHONPATH", "")) if p)
    return {
        "PYTHONPATH": path,
        "SGLANG_USE_CPU_ENGINE": "1",
        # The plug-in refuses any other SGLang; it cannot import this module, which its interpreter may lack.
        "SPECPROBE_CPU_ENGINE_SGLANG": SGLANG_VERSION,
        # A host with a GPU must not see half a CUDA engine: SGLang asks both questions independently.
        "CUDA_VISIBLE_DEVICES": "",
        # Staged directories are complete; a hub look-up could only hang a boot on a machine without a network.
        "HF_HUB_OFFLINE": base.get("HF_HUB_OFFLINE", "1"),
        # Inductor would compile small tensor helpers with a C++ compiler that the machine may lack, for seconds.
        "TORCHDYNAMO_DISABLE": "1",
        # OpenMP threads that spin at a barrier wait for one that another process has pushed off its core: a
        # tiny target fell from 110 to 2 tok/s beside one busy process. One thread cannot wait for another.
        "OMP_NUM_THREADS": base.get("OMP_NUM_THREADS", "1"),
        "OMP_WAIT_POLICY": base.get("OMP_WAIT_POLICY", "PASSIVE"),
    }


def private(folder: Path) -> dict[str, str]:
    """Return the variables that keep a child's own sockets off every network; ``folder`` is the child's alone.

    torch's store for process groups listens on all interfaces whatever address it is given, so the only process
    of the group meets itself in a file instead; its gloo sockets go to the loopback interface, and not to whatever
    the host's name resolves to.
    """
    return {
        "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE": f"file://{folder / 'rendezvous'}",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def server_args(
    *,
    speculative: bool,
    mla: bool,
    max_total_tokens: int = 16384,
    max_running_requests: int = 8,
) -> tuple[str, ...]:
    """Return the SGLang flags that a CPU server needs besides the model, the port and the speculation shape.

    ``speculative`` says that the caller adds EAGLE-3 flags; ``mla`` that the target has multi-head latent
    attention, whose draft attention SGLang would otherwise choose differently from the target's. The KV pool
    holds ``max_total_tokens`` tokens for at most ``max_running_requests`` requests at a time.
    """
    args = [
        "--device", "cpu",
        "--dtype", "float32",
        "--attention-backend", "intel_amx",
        "--cuda-graph-backend-decode", "disabled",
        "--cuda-graph-backend-prefill", "disabled",
        "--max-total-tokens", str(max_total_tokens),
        "--max-running-requests", str(max_running_requests),
        # An idle scheduler otherwise spins, and starves any other server of the same machine.
        "--sleep-on-idle",
    ]  # fmt: skip
    if speculative and mla:
        args += ["--speculative-draft-attention-backend", "intel_amx"]
    return tuple(args)
