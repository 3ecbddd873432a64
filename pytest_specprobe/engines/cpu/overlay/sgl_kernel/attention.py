"""Attention over SGLang's paged KV cache, for extend (prefill, verify, draft extend) and for decode.

Names used below: T query rows of the whole batch, B requests, H query heads, K key/value heads (H is a multiple
of K; K is 1 for absorbed multi-head latent attention), D key width, V value width, N cache slots, R rows and C
columns of the request table. Results are written into ``out``; all arithmetic is in the dtype of the query, with
the softmax of ``torch.nn.functional.scaled_dot_product_attention``.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

_COMMON = "bool is_cross_attention, int sliding_window, Tensor? encoder_lens, Tensor? sinks"
_EXTEND = (
    "extend_attention_cpu(Tensor query, Tensor? key, Tensor? value, Tensor(a!) out, Tensor key_cache, "
    "Tensor value_cache, float key_scale, float value_scale, Tensor req_to_token, Tensor req_pool_indices, "
    "Tensor seq_lens, Tensor extend_lens, Tensor extend_starts, int max_extend_len, float scale, "
    f"float logit_cap, {_COMMON}, Tensor? tree_mask, bool causal) -> ()"
)
_DECODE = (
    "decode_attention_cpu(Tensor query, Tensor(a!) key_cache, Tensor(b!) value_cache, float key_scale, "
    "float value_scale, Tensor(c!) out, Tensor? key, Tensor? value, Tensor write_locs, Tensor workspace, "
    f"Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, float scale, float logit_cap, {_COMMON}) -> ()"
)


def register(library: torch.library.Library) -> None:
    """Register the operations of this module under ``torch.ops.sgl_kernel``."""
    library.define(_EXTEND)
    library.define(_DECODE)
    library.impl("extend_attention_cpu", extend_attention_cpu, "CompositeExplicitAutograd")
    library.impl("decode_attention_cpu", decode_attention_cpu, "CompositeExplicitAutograd")


def extend_attention_cpu(
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    out: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    key_scale: float,
    value_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_lens: torch.Tensor,
    extend_starts: torch.Tensor,
    max_extend_len: int,
    scale: float,
    logit_cap: float,
    is_cross_attention: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    causal: bool,
) -> None:
    """Attend from each request's new rows to its cached prefix and to its new rows.

    query [T, H, D]; key [T, K, D] and value [T, K, V] of the new rows, or None when they are in the cache only;
    out [T, H, V]; key_cache [N, K, D], value_cache [N, K, V]; req_to_token [R, C] int32 cache slots;
    req_pool_indices, seq_lens (new rows included), extend_lens, extend_starts [B] integers; tree_mask flat bool,
    one [n, n] block a request, row i true where new row i sees new row j.

    The prefix (seq_len - extend_len tokens) is always seen whole. New rows see themselves and earlier new rows,
    or what ``tree_mask`` says. With no prefix, K and D of ``key`` may differ from the cache's (MLA prefill runs
    in multi-head form while its cache holds latents).
    """
    _refuse(key_scale, value_scale, logit_cap, is_cross_attention, sliding_window, encoder_lens, sinks)
    mask_start = 0
    rows = zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        extend_lens.tolist(),
        extend_starts.tolist(),
        strict=True,
    )
    for row, seq_len, new, start in rows:
        stop, prefix = start + new, seq_len - new
        if key is None or value is None:
            slots = req_to_token[row, :seq_len].long()
            keys, values = key_cache[slots], value_cache[slots]
        elif prefix == 0:
            keys, values = key[start:stop], value[start:stop]
        else:
            slots = req_to_token[row, :prefix].long()
            keys = torch.cat((key_cache[slots].to(key.dtype), key[start:stop]))
            values = torch.cat((value_cache[slots].to(value.dtype), value[start:stop]))
        visible = torch.ones(new, seq_len, dtype=torch.bool)
        if tree_mask is not None:
            block = tree_mask.view(-1)[mask_start : mask_start + new * new]
            visible[:, prefix:] = block.view(new, new)
            mask_start += new * new
        elif causal:
            visible.tril_(diagonal=prefix)
        out[start:stop] = _attend(query[None, start:stop], keys[None], values[None], visible[None], scale)[0]


def decode_attention_cpu(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    key_scale: float,
    value_scale: float,
    out: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    write_locs: torch.Tensor,
    workspace: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    logit_cap: float,
    is_cross_attention: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """Write one new row a request into the cache, then attend from it to the request's whole sequence.

    query [B, H, D]; key [B, K, D] and value [B, K, V] of the new rows (views of wider storage are fine) go to
    cache slots write_locs [B] unless None; out [B, H, V]; the rest as in ``extend_attention_cpu``. seq_lens
    count the new row. ``workspace`` is the compiled kernel's and is not used.
    """
    _refuse(key_scale, value_scale, logit_cap, is_cross_attention, sliding_window, encoder_lens, sinks)
    if key is not None and value is not None:
        locs = write_locs.long()
        key_cache[locs] = key.reshape(-1, *key_cache.shape[1:]).to(key_cache.dtype)
        value_cache[locs] = value.reshape(-1, *value_cache.shape[1:]).to(value_cache.dtype)
    longest = int(seq_lens.max()) if seq_lens.numel() else 0
    seen = torch.arange(longest)[None, :] < seq_lens[:, None]
    # Columns past a request's length hold whatever the table held last; slot 0 is always readable.
    slots = req_to_token[req_pool_indices.long(), :longest].long().masked_fill(~seen, 0)
    out.copy_(_attend(query[:, None], key_cache[slots], value_cache[slots], seen[:, None], scale)[:, 0])


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return [B, T, H, V] for query [B, T, H, D], key [B, S, K, D], value [B, S, K, V], visible [B, T, S]."""
    result = scaled_dot_product_attention(
        query.transpose(1, 2),
        key.to(query.dtype).transpose(1, 2),
        value.to(query.dtype).transpose(1, 2),
        attn_mask=visible[:, None],
        scale=scale,
        enable_gqa=query.shape[2] != key.shape[2],
    )
    return result.transpose(1, 2)


def _refuse(
    key_scale: float,
    value_scale: float,
    logit_cap: float,
    is_cross_attention: bool,
    sliding_window: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """Raise NotImplementedError for a feature that would otherwise be left out of the result in silence."""
    asked = {
        "a scaled KV cache": (key_scale, value_scale) != (1.0, 1.0),
        "a logit cap": logit_cap != 0.0,
        "cross attention": is_cross_attention or encoder_lens is not None,
        "a sliding window": sliding_window > 0,
        "attention sinks": sinks is not None,
    }
    if any(asked.values()):
        names = ", ".join(name for name, wanted in asked.items() if wanted)
        raise NotImplementedError(f"the specprobe CPU engine has no attention with {names}")
