"""What a server child needs so that one boot can serve several step counts, one at a time.

Stock SGLang prebuilds one state per candidate (``--speculative-adaptive``); the overlay's plug-in, on the *child's*
``PYTHONPATH`` only, chooses between them. Any device; by reading, SGLang 0.5.14, 0.5.17 and 0.5.23 have the names
(0.5.12 has not). Where they are missing the plug-in stays off and the server refuses a pin: ask, never assume.
"""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path

OVERLAY = Path(__file__).resolve().parent / "overlay"
"""Folder to put on the child's ``PYTHONPATH``."""

PIN_KEY = "speculative_num_steps"
"""The key of ``POST /set_internal_state`` that the plug-in answers to."""

# More decode batches than any probe runs: SGLang then never moves by its own statistics.
_NEVER = 1_000_000_000


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set, on top of ``base``: the overlay goes first on ``PYTHONPATH``."""
    path = os.pathsep.join(p for p in (str(OVERLAY), base.get("PYTHONPATH", "")) if p)
    return {"PYTHONPATH": path}


def adaptive_config(candidates: Collection[int]) -> str:
    """Return the JSON of ``--speculative-adaptive-config``: one slot for every batch size, held where it is put."""
    return json.dumps({"1": {"candidate_steps": sorted(set(candidates)), "warmup_batches": _NEVER}})
