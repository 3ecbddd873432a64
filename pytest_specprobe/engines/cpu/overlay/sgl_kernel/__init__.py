"""The CPU operations that SGLang 0.5.23 needs to run EAGLE-3, in plain torch.

This package stands in for SGLang's compiled ``sgl_kernel`` in a child process whose ``PYTHONPATH`` names it
first. It is complete for greedy EAGLE-3 (chains and trees) on dense and DeepSeek-V3-shaped targets, and for
nothing else: a name that is not here raises an error that says so.

Attention, and what Arm hosts are asked, is called through ``torch.ops.sgl_kernel`` and registered there; all else
is called as a function of this module. ``convert_weight_packed`` must never be registered: SGLang takes its
presence, on a CPU with AMX tiles, as leave to use the whole compiled AMX library.
"""

from typing import NoReturn

import torch

from sgl_kernel import attention, parallel
from sgl_kernel.cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, fill_bonus_tokens_cpu, verify_tree_greedy_cpu

__version__ = "0.4.10+specprobe"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]

# Keeps the registrations alive: torch drops them with the library object.
_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")
attention.register(_LIBRARY)
parallel.register(_LIBRARY)


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"sgl_kernel.{name} is not provided by the specprobe CPU engine")
