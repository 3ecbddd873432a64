"""Cache slots and rows, moved one by one; and what the overlay refuses."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


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


def test_an_unknown_operation_is_named(kernel: Any) -> None:
    with pytest.raises(AttributeError, match=r"sgl_kernel\.rmsnorm is not provided"):
        _ = kernel.rmsnorm
    with pytest.raises(ImportError, match="rmsnorm"):
        exec("from sgl_kernel import rmsnorm")  # noqa: S102 - a fixed text, run in a child
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
