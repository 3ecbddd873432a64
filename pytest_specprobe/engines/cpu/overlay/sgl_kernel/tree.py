"""Draft trees: built from what the drafter scored best, then walked along what the target would have said.

A tree has N nodes a request (``draft_token_num``); node 0 is the last committed token, nodes 1 to N - 1 are
drafts, parents before children. SGLang names a draft by its place in the drafter's candidate list: step 0 gives
places 0 to topk - 1, every later step topk * topk more; a draft's ``place // topk`` finds its parent's place in
``parent_list``, with 0 for the root.
"""

import torch

_NONE = -1  # SGLang's mark for "no such node", and what every link holds before the tree is built
_QLEN_ONLY = 1  # SGLang's TreeMaskMode in which the mask has no columns for the prefix


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Write mask, positions and links of every request's tree.

    parent_list [B, 1 + topk * (depth - 1)] (or [B, 0] for depth 1), selected_index [B, N - 1] places in rising
    order, verified_seq_len [B], all int64. Written: tree_mask flat bool [B * N * N], row i true at i's ancestors
    and itself; positions [B * N] int64, committed length plus depth in the tree; retrive_index [B, N] row of each
    node in the flattened batch; retrive_next_token [B, N] a node's first child; retrive_next_sibling [B, N] the
    next child of the same parent; -1 where there is none.
    """
    if int(tree_mask_mode) != _QLEN_ONLY:
        raise NotImplementedError(f"the specprobe CPU engine has no tree mask of mode {int(tree_mask_mode)}")
    batch, nodes = verified_seq_len.shape[0], draft_token_num
    parent = _parents(parent_list, selected_index.view(batch, nodes - 1), topk)

    number = torch.arange(nodes)
    visible = torch.zeros(batch, nodes, nodes, dtype=torch.bool)
    visible[:, :, 0] = True
    level = torch.zeros(batch, nodes, dtype=torch.long)
    at = number.expand(batch, nodes)
    for _ in range(depth):
        visible.scatter_(2, at[:, :, None], value=True)
        level += at > 0
        at = parent.gather(1, at).clamp(min=0)
    tree_mask.view(-1)[: batch * nodes * nodes] = visible.view(-1).to(tree_mask.dtype)
    positions.view(-1)[: batch * nodes] = (level + verified_seq_len[:, None]).view(-1).to(positions.dtype)

    retrive_index.copy_(torch.arange(batch * nodes).view(batch, nodes))
    child_of = parent[:, None, :] == number[None, :, None]  # [B, parent, child]
    retrive_next_token.copy_(_first(child_of))
    shares = (parent[:, :, None] == parent[:, None, :]) & (parent >= 0)[:, :, None]
    retrive_next_sibling.copy_(_first(shares & (number[None, :] > number[:, None])))


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Walk each tree from its root to the child that the target would have said, as long as there is one.

    candidates and target_predict [B, N]: a node's own token, and the target's choice after it; links [B, N] as
    built above. Written: predicts flat [B * N], the target's choice at every node on the path (the last is the
    bonus token); accept_index [B, S] rows of the path's nodes in the flattened batch, root first, at most S;
    accept_token_num [B] accepted drafts (root and bonus not counted).
    """
    tokens, choices = candidates.tolist(), target_predict.view(candidates.shape).tolist()
    rows, children = retrive_index.tolist(), retrive_next_token.tolist()
    siblings, flat = retrive_next_sibling.tolist(), predicts.view(-1)
    for request, token in enumerate(tokens):
        path = [0]
        while len(path) < accept_index.shape[1]:
            choice = choices[request][path[-1]]
            node = children[request][path[-1]]
            while node != _NONE and token[node] != choice:
                node = siblings[request][node]
            if node == _NONE:
                break
            path.append(node)
        for place, node in enumerate(path):
            accept_index[request, place] = rows[request][node]
            flat[rows[request][node]] = choices[request][node]
        accept_token_num[request] = len(path) - 1


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, accept_stride: int
) -> None:
    """Write each request's last accepted token into bonus_tokens [B].

    accept_tokens flat [B * accept_stride]; accept_lens [B] counts the bonus token, so it is at least 1.
    """
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.view(-1)[last])


def _parents(parent_list: torch.Tensor, selected: torch.Tensor, topk: int) -> torch.Tensor:
    """Return each node's parent [B, N]: a node number, or -1 for the root and for a parent not selected."""
    slot = selected // topk
    root_child = slot == 0
    if parent_list.numel():
        place = parent_list.view(selected.shape[0], -1).gather(1, slot)
    else:
        place = torch.full_like(slot, _NONE)
    found = _first(place[:, :, None] == selected[:, None, :])
    parent = torch.where(root_child, 0, torch.where(found >= 0, found + 1, _NONE))
    return torch.cat((parent.new_full((parent.shape[0], 1), _NONE), parent), dim=1)


def _first(true: torch.Tensor) -> torch.Tensor:
    """Return the index of the first true along the last axis, -1 where there is none."""
    return torch.where(true.any(-1), true.int().argmax(-1), _NONE)
