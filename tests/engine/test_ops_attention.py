"""The overlay's attention against a softmax over one row at a time."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def attend_one(
    query: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor], scale: float
) -> torch.Tensor:
    """Return [H, V] for one row: query [H, D], keys and values [K, *] of what it sees, in any order."""
    share = query.shape[0] // keys[0].shape[0]
    rows = []
    for head in range(query.shape[0]):
        scores = [float(query[head] @ key[head // share]) * scale for key in keys]
        top = max(scores)
        weights = [math.exp(s - top) for s in scores]
        mixed = sum(w * v[head // share] for w, v in zip(weights, values, strict=True))
        rows.append(mixed / sum(weights))
    return torch.stack(rows)


class Paged:
    """A paged cache of a few requests whose slots are scattered, with rubbish wherever nothing was written."""

    def __init__(self, seed: int, lens: list[int], *, kv_heads: int, width: int, value_width: int) -> None:
        self.gen = torch.Generator().manual_seed(seed)
        rows, columns, slots = len(lens) + 2, max(lens) + 5, sum(lens) + 9
        self.keys = self.normal(slots, kv_heads, width)
        self.values = self.normal(slots, kv_heads, value_width)
        self.table = torch.full((rows, columns), 10**6, dtype=torch.int32)  # nothing may read what was not written
        free = torch.randperm(slots, generator=self.gen)
        self.rows = torch.randperm(rows, generator=self.gen)[: len(lens)]
        for row, length in zip(self.rows.tolist(), lens, strict=True):
            self.table[row, :length], free = free[:length].int(), free[length:]

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.gen)

    def slots(self, request: int, length: int) -> torch.Tensor:
        return self.table[self.rows[request], :length].long()


REQUESTS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=3)
NONE_ASKED = (False, 0, None, None)


@EXAMPLES
@given(seed=SEEDS, requests=REQUESTS, heads=st.sampled_from([(4, 2), (3, 1), (2, 2)]), masked=st.booleans())
def test_extend_sees_prefix_and_allowed_new_rows(
    kernel: Any, seed: int, requests: list[tuple[int, int]], heads: tuple[int, int], masked: bool
) -> None:
    lens = [prefix + new for prefix, new in requests]
    cache = Paged(seed, lens, kv_heads=heads[1], width=6, value_width=4)
    total = sum(new for _, new in requests)
    query, key, value = (
        cache.normal(total, heads[0], 6),
        cache.normal(total, heads[1], 6),
        cache.normal(total, heads[1], 4),
    )
    masks = [torch.rand(n, n, generator=cache.gen) < 0.5 for _, n in requests]
    for mask in masks:
        mask.fill_diagonal_(True)
    new = torch.tensor([n for _, n in requests])
    starts = new.cumsum(0) - new
    out = torch.full((total, heads[0], 4), math.nan)
    torch.ops.sgl_kernel.extend_attention_cpu(
        *(query, key, value, out, cache.keys, cache.values, 1.0, 1.0, cache.table, cache.rows),
        *(torch.tensor(lens), new, starts, int(new.max()), 0.5, 0.0, *NONE_ASKED),
        *(torch.cat([m.flatten() for m in masks]) if masked else None, True),
    )
    for number, (prefix, count) in enumerate(requests):
        past = cache.slots(number, prefix)
        for i in range(count):
            row = int(starts[number]) + i
            seen = [j for j in range(count) if (masks[number][i, j] if masked else j <= i)]
            keys = [*cache.keys[past], *(key[int(starts[number]) + j] for j in seen)]
            values = [*cache.values[past], *(value[int(starts[number]) + j] for j in seen)]
            torch.testing.assert_close(out[row], attend_one(query[row], keys, values, 0.5), rtol=1e-4, atol=1e-5)


def test_extend_in_multi_head_form_over_a_latent_cache_never_reads_it(kernel: Any) -> None:
    cache = Paged(3, [4], kv_heads=1, width=7, value_width=5)
    query, key, value = cache.normal(4, 2, 6), cache.normal(4, 2, 6), cache.normal(4, 2, 3)
    out = torch.empty(4, 2, 3)
    four, zero = torch.tensor([4]), torch.tensor([0])
    torch.ops.sgl_kernel.extend_attention_cpu(
        *(query, key, value, out, cache.keys * math.nan, cache.values * math.nan, 1.0, 1.0, cache.table, cache.rows),
        *(four, four, zero, 4, 0.5, 0.0, *NONE_ASKED, None, True),
    )
    for i in range(4):
        expected = attend_one(query[i], list(key[: i + 1]), list(value[: i + 1]), 0.5)
        torch.testing.assert_close(out[i], expected, rtol=1e-4, atol=1e-5)


@EXAMPLES
@given(seed=SEEDS, lens=st.lists(st.integers(1, 7), min_size=1, max_size=4), write=st.booleans())
def test_decode_writes_its_row_and_sees_the_whole_sequence(
    kernel: Any, seed: int, lens: list[int], write: bool
) -> None:
    cache = Paged(seed, lens, kv_heads=2, width=6, value_width=4)
    query, key, value = cache.normal(len(lens), 4, 6), cache.normal(len(lens), 2, 6), cache.normal(len(lens), 2, 4)
    locs = torch.stack([cache.slots(i, length)[-1] for i, length in enumerate(lens)])
    keys, values = cache.keys.clone(), cache.values.clone()
    if write:
        for i, loc in enumerate(locs.tolist()):
            keys[loc], values[loc] = key[i], value[i]
    out = torch.full((len(lens), 4, 4), math.nan)
    torch.ops.sgl_kernel.decode_attention_cpu(
        *(query, cache.keys, cache.values, 1.0, 1.0, out, key if write else None, value if write else None),
        *(locs, torch.empty(0), cache.table, cache.rows, torch.tensor(lens), 0.5, 0.0, *NONE_ASKED),
    )
    assert torch.equal(cache.keys, keys)
    assert torch.equal(cache.values, values)
    for i, length in enumerate(lens):
        slots = cache.slots(i, length)
        expected = attend_one(query[i], list(keys[slots]), list(values[slots]), 0.5)
        torch.testing.assert_close(out[i], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"key_scale": 0.5}, "a scaled KV cache"),
        ({"logit_cap": 30.0}, "a logit cap"),
        ({"is_cross_attention": True}, "cross attention"),
        ({"sliding_window": 9}, "a sliding window"),
        ({"sinks": torch.zeros(1)}, "attention sinks"),
    ],
)
def test_an_attention_feature_that_is_not_there_is_refused_by_name(
    kernel: Any, change: dict[str, Any], named: str
) -> None:
    row, one = torch.zeros(1, 1, 2), torch.tensor([1])
    arguments: dict[str, Any] = {
        "query": row,
        "key_cache": row,
        "value_cache": row,
        "key_scale": 1.0,
        "value_scale": 1.0,
        "out": row.clone(),
        "key": None,
        "value": None,
        "write_locs": one - 1,
        "workspace": row,
        "req_to_token": torch.zeros(1, 1, dtype=torch.int32),
        "req_pool_indices": one - 1,
        "seq_lens": one,
        "scale": 1.0,
        "logit_cap": 0.0,
        "is_cross_attention": False,
        "sliding_window": 0,
        "encoder_lens": None,
        "sinks": None,
    }
    torch.ops.sgl_kernel.decode_attention_cpu(**arguments)
    with pytest.raises(NotImplementedError, match=named):
        torch.ops.sgl_kernel.decode_attention_cpu(**{**arguments, **change})
