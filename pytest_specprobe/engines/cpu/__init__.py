"""Real, unmodified SGLang on a CPU: what a child server needs to run EAGLE-3 without a GPU or AMX.

``environment``, ``private`` and ``server_args`` say how to start the child; the ``overlay`` folder is what they put
on its path. Nothing here imports torch or SGLang.
"""

from pytest_specprobe.engines.cpu.launch import OVERLAY, SGLANG_VERSION, environment, private, server_args

__all__ = ["OVERLAY", "SGLANG_VERSION", "environment", "private", "server_args"]
