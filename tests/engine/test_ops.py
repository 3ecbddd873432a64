"""Each operation of the overlay against a slow reference that shares no idea with it."""

import itertools
import math
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specprobe.engines.cpu import OVERLAY

EXAMPLES = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="session")
def kernel() -> Any:
    """Import the overlay's ``sgl_kernel``, once: its operations can be registered once a process."""
    sys.path.insert(0, str(OVERLAY))
    try:
        import sgl_kernel  # noqa: PLC0415  only now does the name mean the overlay
    finally:
        sys.path.remove(str(OVERLAY))
    assert sgl_kernel.__file__.startswith(str(OVERLAY))
    return sgl_kernel


# ---- attention ----------------------------------------------------------------------------------------------


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


# ---- trees --------------------------------------------------------------------------------------------------

Path = tuple[int, ...]


def grow(gen: torch.Generator, *, topk: int, steps: int, nodes: int) -> tuple[list[Path], torch.Tensor, torch.Tensor]:
    """Grow a random draft tree as EAGLE does: return node paths (root first) and SGLang's two index tensors.

    A path is the ranks chosen on the way; scores fall along it. Places and parent places are kept in a plain
    dictionary from path to place.
    """

    def worse(score: float) -> float:
        return score * float(torch.rand((), generator=gen)) * 0.999

    beam: dict[Path, float] = {(rank,): worse(1.0) for rank in range(topk)}
    place = {path: i for i, path in enumerate(beam)}
    scores, parents = dict(beam), [-1, *range(topk)]
    for step in range(1, steps):
        children = {(*path, rank): worse(score) for path, score in beam.items() for rank in range(topk)}
        place.update({path: topk + topk * topk * (step - 1) + i for i, path in enumerate(children)})
        scores.update(children)
        best = sorted(children, key=lambda path: -children[path])[:topk]
        beam = {path: children[path] for path in best}
        if step < steps - 1:
            parents += [place[path] for path in best]
    chosen = sorted(sorted(scores, key=lambda path: -scores[path])[: nodes - 1], key=lambda path: place[path])
    if steps == 1:
        parents = []
    return [(), *chosen], torch.tensor(parents, dtype=torch.long), torch.tensor([place[p] for p in chosen])


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(2, 9)).filter(
    lambda s: s[2] - 1 <= s[0] + (s[1] - 1) * s[0] * s[0]
)


def build(
    kernel: Any, parents: torch.Tensor, chosen: torch.Tensor, lens: list[int], shape: tuple[int, int, int]
) -> Any:
    (topk, steps, nodes), batch = shape, len(lens)
    mask = torch.ones(batch * nodes * nodes, dtype=torch.bool)
    positions = torch.empty(batch * nodes, dtype=torch.long)
    index, child, sibling = torch.full((3, batch, nodes), -1, dtype=torch.long)
    kernel.build_tree_kernel_efficient_cpu(
        *(parents, chosen, torch.tensor(lens), mask, positions, index, child, sibling, topk, steps, nodes, 1)
    )
    return mask.view(batch, nodes, nodes), positions.view(batch, nodes), index, child, sibling


@EXAMPLES
@given(seed=SEEDS, shape=SHAPES, lens=st.lists(st.integers(1, 50), min_size=1, max_size=3))
def test_a_built_tree_is_the_tree_that_was_grown(
    kernel: Any, seed: int, shape: tuple[int, int, int], lens: list[int]
) -> None:
    gen = torch.Generator().manual_seed(seed)
    grown = [grow(gen, topk=shape[0], steps=shape[1], nodes=shape[2]) for _ in lens]
    parents, chosen = torch.stack([g[1] for g in grown]), torch.stack([g[2] for g in grown])
    mask, positions, index, child, sibling = build(kernel, parents, chosen, lens, shape)
    for number, (paths, _, _) in enumerate(grown):
        for i, path in enumerate(paths):
            ancestors = [j for j, other in enumerate(paths) if path[: len(other)] == other]
            assert mask[number, i].nonzero().flatten().tolist() == ancestors
            assert positions[number, i] == lens[number] + len(path)
            assert index[number, i] == number * shape[2] + i
            children = [j for j, other in enumerate(paths) if other and other[:-1] == path and j]
            assert child[number, i] == (children[0] if children else -1)
            links = dict(itertools.pairwise(children))
            assert all(sibling[number, j] == links.get(j, -1) for j in children)


@EXAMPLES
@given(seed=SEEDS, shape=SHAPES, batch=st.integers(1, 3))
def test_verification_follows_the_target_as_far_as_the_tree_goes(
    kernel: Any, seed: int, shape: tuple[int, int, int], batch: int
) -> None:
    (topk, steps, nodes), gen = shape, torch.Generator().manual_seed(seed)
    grown = [grow(gen, topk=topk, steps=steps, nodes=nodes) for _ in range(batch)]
    parents, chosen = torch.stack([g[1] for g in grown]), torch.stack([g[2] for g in grown])
    _, _, index, child, sibling = build(kernel, parents, chosen, [1] * batch, shape)
    # A node's token is its last rank, so that siblings differ; the target likes ranks that exist.
    tokens = torch.tensor([[path[-1] if path else 99 for path in g[0]] for g in grown])
    target = torch.randint(0, topk + 1, (batch, nodes), generator=gen)
    predicts = torch.full((batch * nodes,), -7, dtype=torch.int32)
    accept = torch.full((batch, steps + 1), -1, dtype=torch.int32)
    count = torch.empty(batch, dtype=torch.int32)
    kernel.verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accept,
        accept_token_num=count,
        candidates=tokens,
        retrive_index=index,
        retrive_next_token=child,
        retrive_next_sibling=sibling,
        target_predict=target,
    )
    for number, (paths, _, _) in enumerate(grown):
        path: Path = ()
        walked = [0]
        while (*path, int(target[number, walked[-1]])) in paths:
            path = (*path, int(target[number, walked[-1]]))
            walked.append(paths.index(path))
        assert count[number] == len(walked) - 1
        assert accept[number].tolist() == [number * nodes + i for i in walked] + [-1] * (steps + 1 - len(walked))
        for i in range(nodes):
            expected = int(target[number, i]) if i in walked else -7
            assert predicts[number * nodes + i] == expected
    bonus = torch.empty(batch, dtype=torch.int32)
    along = predicts[accept.clamp(min=0).long()]
    kernel.fill_bonus_tokens_cpu(along.flatten(), count + 1, bonus, steps + 1)
    last = [int(target[n, int(accept[n, int(count[n])]) - n * nodes]) for n in range(batch)]
    assert bonus.tolist() == last


def test_a_draft_whose_parent_was_not_chosen_is_reached_from_nowhere(kernel: Any) -> None:
    # Two equal scores can put a child into the tree without its parent: places 0 (a root's child) and 5 (a child of
    # place 1).
    parents, chosen = torch.tensor([[-1, 0, 1]]), torch.tensor([[0, 5]])
    mask, positions, _, child, sibling = build(kernel, parents, chosen, [7], (2, 2, 3))
    assert child.tolist() == [[1, -1, -1]]
    assert sibling.tolist() == [[-1, -1, -1]]
    assert mask[0].tolist() == [[True, False, False], [True, True, False], [True, False, True]]
    assert positions.tolist() == [[7, 8, 8]]


def test_a_tree_mask_with_prefix_columns_is_refused(kernel: Any) -> None:
    empty = torch.zeros(1, 1, dtype=torch.long)
    with pytest.raises(NotImplementedError, match="tree mask of mode 0"):
        kernel.build_tree_kernel_efficient_cpu(*[empty] * 8, 1, 1, 2, 0)


# ---- cache slots --------------------------------------------------------------------------------------------


@EXAMPLES
@given(seed=SEEDS, spans=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=4))
def test_slots_go_into_the_table_and_come_out_again(kernel: Any, seed: int, spans: list[tuple[int, int]]) -> None:
    gen = torch.Generator().manual_seed(seed)
    table = torch.randint(100, 200, (6, 12), generator=gen, dtype=torch.int32)
    before, rows = table.clone(), torch.randperm(6, generator=gen)[: len(spans)]
    starts = torch.tensor([start for start, _ in spans])
    ends = torch.tensor([start + count for start, count in spans])
    slots = torch.arange(int((ends - starts).sum()))
    kernel.assign_req_to_token_pool_cpu(rows, table, starts, ends, slots, 12)
    expected, given_out = before.clone(), iter(slots.tolist())
    for row, (start, count) in zip(rows.tolist(), spans, strict=True):
        for column in range(start, start + count):
            expected[row, column] = next(given_out)
    assert torch.equal(table, expected)
    out = torch.full((slots.numel() + 2,), -5)
    kernel.assign_extend_cache_locs_cpu(rows, table, starts, ends, out, 12)
    assert out.tolist() == [*slots.tolist(), -5, -5]


@EXAMPLES
@given(lens=st.lists(st.integers(1, 6), min_size=1, max_size=3), topk=st.integers(1, 3), num_steps=st.integers(1, 3))
def test_every_draft_branch_becomes_a_request(kernel: Any, lens: list[int], topk: int, num_steps: int) -> None:
    columns = 6 + topk * num_steps
    table = torch.arange(5 * columns, dtype=torch.int32).view(5, columns)
    rows, seq_lens = torch.arange(len(lens)) + 1, torch.tensor(lens)
    branches = kernel.build_draft_decode_metadata_cpu(table, rows, seq_lens, topk, num_steps, columns)
    out = torch.empty(len(lens) * topk * num_steps, dtype=torch.long)
    kernel.assign_draft_cache_locs_contiguous_cpu(rows, table, seq_lens, out, columns, topk, num_steps)
    own = out.view(len(lens), topk, num_steps)
    for i, length in enumerate(lens):
        for k in range(topk):
            row = branches[i * topk + k]
            assert row[:length].tolist() == table[i + 1, :length].tolist()
            assert row[length : length + num_steps].tolist() == own[i, k].tolist()
    assert own.unique().numel() == own.numel()


@EXAMPLES
@given(seed=SEEDS, count=st.integers(0, 6))
def test_cache_rows_move_as_if_all_were_read_first(kernel: Any, seed: int, count: int) -> None:
    gen = torch.Generator().manual_seed(seed)
    buffers = [torch.randn(8, 2, 3, generator=gen), torch.randn(8, 1, 5, generator=gen).bfloat16()]
    targets = torch.randperm(8, generator=gen)[:count]
    sources = torch.randint(0, 8, (count,), generator=gen)
    expected = [buffer.clone() for buffer in buffers]
    for after, buffer in zip(expected, buffers, strict=True):
        for target, source in zip(targets.tolist(), sources.tolist(), strict=True):
            after[target] = buffer[source]
    pointers = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    strides = torch.tensor([buffer[0].nbytes for buffer in buffers])
    kernel.copy_all_layer_kv_cache_cpu(pointers, strides, targets, sources)
    assert all(torch.equal(a, b) for a, b in zip(buffers, expected, strict=True))


def test_slots_of_accepted_tokens_are_packed(kernel: Any) -> None:
    out = torch.zeros(6, dtype=torch.long)
    accept = torch.tensor([[0, 2, -1], [4, -1, -1]], dtype=torch.int32)
    kernel.fill_accept_out_cache_loc_cpu(accept, torch.arange(10, 18), out)
    assert out.tolist() == [10, 12, 14, 0, 0, 0]


# ---- what is not there --------------------------------------------------------------------------------------


def test_an_unknown_operation_is_named(kernel: Any) -> None:
    with pytest.raises(AttributeError, match=r"sgl_kernel\.rmsnorm is not provided"):
        _ = kernel.rmsnorm
    with pytest.raises(ImportError, match="rmsnorm"):
        exec("from sgl_kernel import rmsnorm")  # noqa: S102
    with pytest.raises(AttributeError, match="fused_experts_cpu"):
        _ = torch.ops.sgl_kernel.fused_experts_cpu


def test_one_process_is_all_there_is(kernel: Any) -> None:
    torch.ops.sgl_kernel.init_cpu_threads_env("0,1")
    torch.ops.sgl_kernel.initialize(1, 0)
    with pytest.raises(NotImplementedError, match="not tensor parallel 2"):
        torch.ops.sgl_kernel.initialize(2, 0)


def test_nothing_invites_sglang_to_use_the_compiled_amx_library(kernel: Any) -> None:
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed")
    assert not hasattr(kernel, "convert_weight_packed")
