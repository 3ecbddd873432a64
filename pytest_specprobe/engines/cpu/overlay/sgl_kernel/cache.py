"""Bookkeeping of KV cache slots: which slot holds which token of which request.

``req_to_token`` is SGLang's request table [R, C] int32: row r, column t holds the cache slot of token t. Slots
are int64 wherever they leave the table. All operations write into an argument, as their compiled namesakes do.
"""

import ctypes

import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write packed slots into the table: request i takes columns starts[i] to ends[i].

    req_pool_indices, starts, ends [B]; out_cache_loc [sum(ends - starts)]. ``pool_len`` is the table's width C.
    """
    rows, columns = _spans(req_pool_indices, starts, ends)
    req_to_token[rows, columns] = out_cache_loc[: rows.numel()].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Read slots out of the table, packed: the inverse of ``assign_req_to_token_pool_cpu``.

    out_cache_loc may be longer than sum(ends - starts); its tail is left as it was.
    """
    rows, columns = _spans(req_pool_indices, starts, ends)
    out_cache_loc[: rows.numel()] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the topk * num_steps slots that follow each request's committed tokens.

    out_cache_loc [B * topk * num_steps]: branch k of request i owns ``num_steps`` of them, in order.
    """
    assign_extend_cache_locs_cpu(
        req_pool_indices, req_to_token, seq_lens, seq_lens + topk * num_steps, out_cache_loc, pool_len
    )


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """Return a request table [B * topk, C] in which each draft branch is a request of its own.

    Row i * topk + k holds request i's committed slots, then the ``num_steps`` slots of branch k (which start
    k * num_steps columns after the committed ones in the request's own row).
    """
    bases = req_to_token[req_pool_indices.long()].repeat_interleave(topk, dim=0)
    lens = seq_lens.long().repeat_interleave(topk)[:, None]
    branch = torch.arange(topk).repeat(seq_lens.numel())[:, None]
    columns = torch.arange(req_to_token.shape[1])[None, :]
    step = columns - lens
    drafted = (step >= 0) & (step < num_steps)
    source = torch.where(drafted, columns + branch * num_steps, columns).clamp(max=req_to_token.shape[1] - 1)
    return bases.gather(1, source)


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """Pack the slots of accepted tokens: accept_index (any shape) holds rows of out_cache_loc, -1 for none."""
    accepted = accept_index.view(-1)
    accepted = accepted[accepted >= 0].long()
    accept_out_cache_loc.view(-1)[: accepted.numel()] = out_cache_loc.view(-1)[accepted]


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, targets: torch.Tensor, sources: torch.Tensor
) -> None:
    """Copy cache rows ``sources`` to ``targets`` [n] in every layer's buffer, as if all were read first.

    data_ptrs [layers] are the addresses of the buffers, strides [layers] their bytes a row. The caller owns the
    memory and keeps every row inside it.
    """
    if targets.numel() == 0:
        return
    rows = int(torch.maximum(targets.max(), sources.max())) + 1
    to, frm = targets.long(), sources.long()
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * stride)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(rows, stride)
        buffer[to] = buffer[frm]


def _spans(
    req_pool_indices: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return table rows and columns [sum(ends - starts)] of each request's columns, request by request."""
    counts = (ends - starts).long()
    rows = req_pool_indices.long().repeat_interleave(counts)
    firsts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    return rows, torch.arange(rows.numel()) - firsts + starts.long().repeat_interleave(counts)
