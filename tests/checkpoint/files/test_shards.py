"""One list of weight files: what the checks read, what is staged and what SGLang loads are the same."""

import ast
import fnmatch
import glob
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_specprobe.checkpoint.files.read import read_weights
from pytest_specprobe.checkpoint.files.shards import INDEX, weight_files
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.staging import stage

FC = {"fc.weight": np.ones((2, 6), np.float32)}
REST = {"norm.weight": np.ones(2, np.float32)}

# Files, and those of the index that lies beside them (None: there is no index).
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None]] = {
    "one": (("model.safetensors",), None),
    "optimizer": (("model.safetensors", "optimizer_fc.safetensors"), None),
    "scheduler": (("model.safetensors", "scheduler.safetensors", "training_state.safetensors"), None),
    "consolidated": (("consolidated.safetensors", "model.safetensors"), None),
    "consolidated of three": (("consolidated.safetensors", "extra.safetensors", "model.safetensors"), None),
    "hidden": ((".hidden.safetensors", "model.safetensors"), None),
    "consolidated and hidden": ((".a.safetensors", "consolidated.safetensors", "model.safetensors"), None),
    "upper case": (("MODEL.SAFETENSORS", "model.safetensors"), None),
    "index": (("a.safetensors", "b.safetensors", "c.safetensors"), ("a.safetensors", "b.safetensors")),
    "optimizer in the index": (
        ("a.safetensors", "optimizer.safetensors"),
        ("a.safetensors", "optimizer.safetensors"),
    ),
}


def make(folder: Path, files: tuple[str, ...], indexed: tuple[str, ...] | None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for number, name in enumerate(files):
        (folder / name).parent.mkdir(exist_ok=True)
        save_file({f"{number}.weight": np.ones(2, np.float32)}, folder / name)
    if indexed is not None:
        (folder / INDEX).write_text(json.dumps({"weight_map": {f"{n}.weight": n for n in indexed}}))
    return folder


def loaded_by_sglang(folder: Path) -> set[str]:
    """Ask the installed SGLang's own function, taken out of its module, which takes half a minute to import."""
    package = find_spec("sglang")
    assert package is not None
    assert package.submodule_search_locations is not None
    source = Path(package.submodule_search_locations[0], "srt", "model_loader", "weight_utils.py").read_text()
    wanted = "filter_duplicate_safetensors_files"
    (function,) = (n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == wanted)
    names: dict[str, Any] = {"os": os, "json": json, "fnmatch": fnmatch, "List": list, "Optional": {list[str]: None}}
    exec(compile(ast.Module([function], []), "weight_utils.py", "exec"), names)  # noqa: S102 - the engine's own code
    opened = glob.glob(os.path.join(folder, "*.safetensors"))  # noqa: PTH118, PTH207 - as the engine does
    found = names[wanted](opened, str(folder), INDEX)
    return {Path(path).name for path in found}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_checked_staged_and_loaded_are_the_same_files(
    tmp_path: Path, case: tuple[tuple[str, ...], tuple[str, ...] | None]
) -> None:
    source = make(tmp_path / "drafter", *case)
    checked = {path.name for path in read_weights(source).files}
    staged = stage(source, cache=tmp_path / "cache", target_positions=None).path
    assert {path.name for path in read_weights(staged).files} == checked
    assert {path.name for path in staged.glob("*") if path.suffix == ".safetensors"} == checked
    if find_spec("sglang") is not None:
        assert loaded_by_sglang(source) == checked
        assert loaded_by_sglang(staged) == checked


def test_fc_in_a_file_that_is_called_optimizer_is_staged(tmp_path: Path) -> None:
    source = tmp_path / "drafter"
    source.mkdir()
    (source / "config.json").write_text("{}")
    save_file(REST, source / "model.safetensors")
    save_file(FC, source / "optimizer_fc.safetensors")
    assert "fc.weight" in read_weights(source).tensors
    staged = stage(source, cache=tmp_path / "cache", target_positions=None).path
    assert read_weights(staged).tensors.keys() == read_weights(source).tensors.keys()


@pytest.mark.parametrize("name", ["sub/b.safetensors", "./b.safetensors", "b.bin", ".b.safetensors"])
def test_an_index_that_names_what_sglang_does_not_open_is_refused(tmp_path: Path, name: str) -> None:
    source = make(tmp_path / "drafter", ("a.safetensors", name), ("a.safetensors", name))
    with pytest.raises(CheckpointError, match="does not open") as caught:
        weight_files(source)
    assert caught.value.finding_id == "file.index-path"
    with pytest.raises(CheckpointError, match="does not open"):
        stage(source, cache=tmp_path / "cache", target_positions=None)


def test_a_weight_file_without_a_printable_name_is_refused(tmp_path: Path) -> None:
    source = make(tmp_path / "drafter", ("model.safetensors",), None)
    (source / "model.safetensors").rename(os.fsdecode(os.fsencode(source) + b"/\xff.safetensors"))
    with pytest.raises(CheckpointError, match="not printable"):
        stage(source, cache=tmp_path / "cache", target_positions=None)
