"""EAGLE-3 drafting, simulated from the paper's equations on a target's hidden states; no code of the engine.

For one finished answer (prompt and output ids, taken as given) it predicts, for every place where a round could
begin, how many drafts that round accepts. Notation: S sequence length, P places where a round may begin, H
hidden width, k branches of the draft tree (1 for a chain).

A drafter row t joins the target's hidden states at token t (three layers, fused by ``fc``) with the embedding of
token t + 1, at position t. The round that begins when token i is the last committed one drafts from row i - 1;
each further step joins the drafter's own last hidden state with the embedding of the token just drafted.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn.functional import silu, softmax

MARGIN = 1e-3
"""Two logits (or log scores) nearer than this may swap places between two correct fp32 programs."""
ORDER_MARGIN = 1e-4
"""The same for the order of a tree's branches. A tree has many, a swap of two only changes which cached rows each
reads back, and scores of two fp32 programs were seen to differ by less than 1e-5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """An EAGLE-3 head: weights in fp32 under short names, and where its vocabulary and features come from.

    ``target_ids`` [draft vocabulary] names each draft token's target token. ``position_shift`` is 0 in a right
    simulation; the mutation tests move the positions of drafted rows, relative to committed ones, by it.
    """

    weights: dict[str, torch.Tensor]
    heads: int
    kv_heads: int
    head_dim: int
    theta: float
    eps: float
    target_ids: torch.Tensor
    aux_layers: tuple[int, ...] | None
    position_shift: int = 0


def load_drafter(folder: Path) -> Drafter:
    """Read an EAGLE-3 head from its directory."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {}
    assert not config.get("rope_scaling"), "the simulation knows plain rotary positions only"
    tensors = load_file(folder / "model.safetensors")
    offsets = tensors.pop("d2t").long()
    ids = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    return Drafter(
        weights={_short(name): tensor.float() for name, tensor in tensors.items() if name != "t2d"},
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        theta=rope.get("rope_theta") or config.get("rope_theta") or 10000.0,
        eps=config["rms_norm_eps"],
        target_ids=offsets + torch.arange(offsets.numel()),
        aux_layers=None if ids is None else tuple(i + 1 for i in ids),
    )


def default_aux_layers(layers: int) -> tuple[int, int, int]:
    """Return the layers whose *inputs* EAGLE-3 reads when the drafter names none."""
    return 2, layers // 2, layers - 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What rounds should do: ``accepted[j]`` for a round that begins with j + 1 output tokens committed.

    ``margin[j]`` is the smallest gap that this result hangs on, in logits (target) or log scores (draft); gaps
    between branches are scaled so that MARGIN judges them all.
    """

    accepted: list[int]
    margin: list[float]


@dataclass(slots=True)
class _Tree:
    """Draft trees as they grew, for P places at once; every list has one entry a step.

    A step's candidates are the k best tokens of each branch, named by branch * k + rank. ``tokens`` and ``scores``
    (summed log probabilities) are [P, branches, k]; ``cuts`` [P, branches] is the gap between a branch's k-th and
    next token. The k best candidates become the next step's branches: ``chosen`` [P, k], best first; ``gaps``
    [P, k] is the gap between each and the candidate ranked next.
    """

    tokens: list[torch.Tensor] = field(default_factory=list)
    scores: list[torch.Tensor] = field(default_factory=list)
    cuts: list[torch.Tensor] = field(default_factory=list)
    chosen: list[torch.Tensor] = field(default_factory=list)
    gaps: list[torch.Tensor] = field(default_factory=list)


def predict(
    drafter: Drafter,
    *,
    sequence: torch.Tensor,
    prompt_len: int,
    output_len: int,
    features: torch.Tensor,
    target_margin: torch.Tensor,
    embedding: torch.Tensor,
    steps: int,
    topk: int,
    tokens: int,
) -> Prediction:
    """Predict every possible round of one answer.

    sequence: prompt, output and at least ``steps`` tokens of the target's own continuation, [S] int64.
    features: the three hidden states side by side at each token, [>= S - 1, 3 H] fp32, right up to the last
    output token. target_margin: top-2 gap of the target's logits after each token, [S - 1]. embedding: the
    target's [V, H]. steps / topk / tokens: shape of the tree, as SGLang's flags say it.
    """
    last = torch.arange(prompt_len, prompt_len + output_len)  # index of the last committed token, per place
    tree = _grow(drafter, sequence, features, embedding, last, steps=steps, topk=topk)
    scores = torch.cat([s.flatten(1) for s in tree.scores], dim=1)
    ranked = scores.sort(dim=1, descending=True)
    # The verified tree holds the best ``tokens - 1`` candidates of all steps: better than ``out``, up to ``into``.
    into = ranked.values[:, tokens - 2]
    out = ranked.values[:, tokens - 1] if tokens - 1 < scores.shape[1] else torch.full_like(into, -math.inf)
    accepted, margin = [], []
    for place, index in enumerate(last.tolist()):
        future = sequence[index + 1 : index + 1 + steps].tolist()
        count, gap = _walk(tree, place, future, float(into[place]), float(out[place]))
        accepted.append(count)
        margin.append(min(gap, *target_margin[index : index + count + 1].tolist()))
    return Prediction(accepted=accepted, margin=margin)


def _walk(tree: _Tree, place: int, future: list[int], into: float, out: float) -> tuple[int, float]:
    """Follow the target's tokens down one tree: return how far they go, and the smallest gap that this hangs on."""
    gap, branch, visited = math.inf, 0, []
    for step, token in enumerate(future):
        gap = min(gap, float(tree.cuts[step][place, branch]))
        said = tree.tokens[step][place, branch].tolist()
        if token not in said:
            break
        rank = said.index(token)
        score = float(tree.scores[step][place, branch, rank])
        if score < into:
            gap = min(gap, into - score)
            break
        gap = min(gap, score - out)
        visited.append(branch)
        if step + 1 == len(tree.tokens):
            break
        branches = tree.chosen[step][place].tolist()
        candidate = branch * len(said) + rank
        if candidate not in branches:
            worst = float(tree.scores[step][place].flatten()[branches[-1]])
            gap = min(gap, worst - score)
            break
        branch = branches.index(candidate)
    # A branch reads back what it drafted itself, so each earlier step must have put the same thing into it.
    lived = [*visited[1:], branch]
    for step in range(min(len(lived), len(tree.gaps))):
        ranks = {r for later in lived[step:] for r in (later - 1, later) if r >= 0}
        gap = min(gap, *(float(tree.gaps[step][place, r]) * MARGIN / ORDER_MARGIN for r in ranks))
    return len(visited), gap


def _grow(
    drafter: Drafter,
    sequence: torch.Tensor,
    features: torch.Tensor,
    embedding: torch.Tensor,
    last: torch.Tensor,
    *,
    steps: int,
    topk: int,
) -> _Tree:
    """Draft ``steps`` levels of a tree from every place at once.

    SGLang gives each of the k branches a stretch of cache of its own and does not move it when a branch changes
    parents, so a branch attends to what *it* drafted at earlier steps, ancestor or not.
    """
    rows = int(last.max())
    fused = features[:rows] @ drafter.weights["fc"].T
    if "fc.bias" in drafter.weights:
        fused = fused + drafter.weights["fc.bias"]
    row = torch.arange(rows)
    query, keys, values = _project(drafter, fused, embedding[sequence[1 : rows + 1]], row)
    mixed = _attend(drafter, query[:, None], keys, values, seen=row[None, :] <= row[:, None], own=None)
    hidden = _finish(drafter, fused, mixed[:, 0])[last - 1][:, None]  # [P, 1, H]
    committed = row[None, :] < last[:, None]  # a place sees rows 0 .. last - 1

    tree, total = _Tree(), torch.zeros(last.numel(), 1)
    own_keys: list[torch.Tensor] = []
    own_values: list[torch.Tensor] = []
    for step in range(steps):
        logits = _norm(drafter, hidden, "norm") @ drafter.weights["lm_head"].T
        best = logits.log_softmax(-1).topk(topk + 1, dim=-1)
        score = total[:, :, None] + best.values[..., :topk]
        tree.tokens.append(drafter.target_ids[best.indices[..., :topk]])
        tree.scores.append(score)
        tree.cuts.append(best.values[..., topk - 1] - best.values[..., topk])
        if step + 1 == steps:
            break
        flat, names = score.flatten(1), tree.tokens[-1].flatten(1)
        ranked = flat.sort(dim=1, descending=True)
        pick = ranked.indices[:, :topk]
        tree.chosen.append(pick)
        below = torch.cat((ranked.values, torch.full((last.numel(), 1), -math.inf)), dim=1)[:, 1 : topk + 1]
        tree.gaps.append(ranked.values[:, :topk] - below)
        total = flat.gather(1, pick)
        hidden = hidden.gather(1, (pick // topk)[:, :, None].expand(-1, -1, hidden.shape[-1]))
        drafted = embedding[names.gather(1, pick)]
        position = (last + step + drafter.position_shift)[:, None].expand(-1, topk)
        query, key, value = _project(drafter, hidden, drafted, position)
        own_keys.append(key)
        own_values.append(value)
        own = torch.stack(own_keys, 2), torch.stack(own_values, 2)
        hidden = _finish(drafter, hidden, _attend(drafter, query, keys, values, seen=committed, own=own))
    return tree


def _project(
    drafter: Drafter, hidden: torch.Tensor, embedded: torch.Tensor, position: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return query, key, value [..., heads, head_dim] of rows [..., H] at integer positions [...]."""
    joined = torch.cat((_norm(drafter, embedded, "input_layernorm"), _norm(drafter, hidden, "hidden_norm")), -1)
    query, key, value = (joined @ drafter.weights[name].T for name in ("q_proj", "k_proj", "v_proj"))
    query = query.unflatten(-1, (drafter.heads, drafter.head_dim))
    key = key.unflatten(-1, (drafter.kv_heads, drafter.head_dim))
    value = value.unflatten(-1, (drafter.kv_heads, drafter.head_dim))
    return _rotate(drafter, query, position), _rotate(drafter, key, position), value


def _rotate(drafter: Drafter, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Turn each pair (i, i + head_dim / 2) by position * theta ** (-2 i / head_dim)."""
    half = drafter.head_dim // 2
    frequency = drafter.theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = (position.double()[..., None, None] * frequency).float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


def _attend(
    drafter: Drafter,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    seen: torch.Tensor,
    own: tuple[torch.Tensor, torch.Tensor] | None,
) -> torch.Tensor:
    """Attend from [P, k] rows to the committed rows each place has seen, and to each branch's own drafted rows.

    query [P, k, heads, d]; keys, values [S, kv, d]; seen [P, S] bool; own: two of [P, k, j, kv, d] or None.
    Returns [P, k, heads * d].
    """
    share = drafter.heads // drafter.kv_heads
    scale = drafter.head_dim**-0.5
    keys, values = keys.repeat_interleave(share, 1), values.repeat_interleave(share, 1)
    score = torch.einsum("pkhd,shd->pkhs", query, keys) * scale
    score = score.masked_fill(~seen[:, None, None, :], -math.inf)
    if own is None:
        mixed = torch.einsum("pkhs,shd->pkhd", softmax(score, -1), values)
    else:
        own_keys, own_values = (x.repeat_interleave(share, 3) for x in own)
        weight = softmax(torch.cat((score, torch.einsum("pkhd,pkjhd->pkhj", query, own_keys) * scale), -1), -1)
        mixed = torch.einsum("pkhs,shd->pkhd", weight[..., : keys.shape[0]], values)
        mixed = mixed + torch.einsum("pkhj,pkjhd->pkhd", weight[..., keys.shape[0] :], own_values)
    return mixed.flatten(-2)


def _finish(drafter: Drafter, hidden: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    """Add attention and MLP to the residual stream: the layer's output, before the last norm."""
    w = drafter.weights
    hidden = hidden + mixed @ w["o_proj"].T
    x = _norm(drafter, hidden, "post_attention_layernorm")
    return hidden + (silu(x @ w["gate_proj"].T) * (x @ w["up_proj"].T)) @ w["down_proj"].T


def _norm(drafter: Drafter, x: torch.Tensor, name: str) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + drafter.eps) * drafter.weights[name]


def _short(name: str) -> str:
    """Return ``q_proj`` for ``midlayer.self_attn.q_proj.weight``, ``fc.bias`` for ``fc.bias``."""
    stem = name.removesuffix(".weight")
    return name if name.endswith(".bias") else stem.rpartition(".")[2]
