"""The founding case at its true size, sparse on disk: a Kimi-K2 drafter of 2 GB and a sharded target's index."""

import json
from pathlib import Path

from tests.support.published_drafters import PUBLISHED, make


def kimi_k2(path: Path, *, shards: int = 61, experts: int = 384, packed: bool = False) -> tuple[Path, Path]:
    """Write a drafter of Kimi-K2's shapes (7168 wide, 32,000 of 163,840 ids) and its target; return both paths.

    The target has an index of ``shards`` files over all its experts' tensors (70,000 by default), the files' headers
    with them; every weight is a hole in the file. ``packed`` stores the experts in 4 bits, in groups of 32 with one
    scale: 0.6 TB, where bf16 takes 2.1.
    """
    drafter, target = make(PUBLISHED[0], path)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:06}.safetensors"
        prefix = f"model.layers.{shard}"
        names = [f"{prefix}.mlp.experts.{e}.{p}_proj.weight" for e in range(experts) for p in ("gate", "up", "down")]
        names += [f"{prefix}.{norm}.weight" for norm in ("input_layernorm", "post_attention_layernorm")]
        shapes = dict.fromkeys(names, (2048, 7168))
        for name in names if packed else ():
            if ".experts." in name:
                # two bytes an entry here: 2048 x 1792 are the 4-bit weights, 2048 x 224 their scales
                del shapes[name]
                shapes |= {f"{name}_packed": (2048, 1792), f"{name}_scale": (2048, 224)}
        if shard == 0:
            shapes["model.embed_tokens.weight"] = (163_840, 7168)
        if shard == shards - 1:
            shapes["lm_head.weight"] = (163_840, 7168)
        weight_map |= dict.fromkeys(shapes, file)
        _write(target / file, shapes)
    index = {"metadata": {"total_size": 10**12}, "weight_map": weight_map}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    return drafter, target


def _write(path: Path, shapes: dict[str, tuple[int, int]]) -> None:
    entries, offset = {}, 0
    for name, (rows, columns) in shapes.items():
        end = offset + 2 * rows * columns
        entries[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + offset)
