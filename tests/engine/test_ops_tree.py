"""Draft trees, built and walked, against trees of plain paths."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)

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
