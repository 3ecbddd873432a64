"""The SGLang version that a drafter needs, feature by feature."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.checkpoint.engine.versions import parse_version
from pytest_specprobe.checkpoint.inspect import inspect
from tests.support import checkpoint_builder as build

NEEDED: list[tuple[Callable[[], build.Checkpoint], dict[str, Any], str, str]] = [
    (build.llama, {}, "midlayer.", "0.5.9"),
    (build.llama, {}, "layers.0.", "0.5.12"),
    (build.llama, {"fc_norm": True}, "midlayer.", "0.5.12"),
    (build.llama, {"norm_output": True}, "midlayer.", "0.5.12"),
    (build.llama, {"num_hidden_layers": 2}, "midlayer.", "0.5.12"),
    (build.llama, {"num_aux_hidden_states": 4}, "midlayer.", "0.5.12"),
    (build.llama, {"norm_before_fc": True}, "midlayer.", "0.5.17"),
    (build.mla, {}, "midlayer.", "0.5.12"),
    (build.mla, {}, "layers.0.", "0.5.12"),
    (build.mla, {"fc_norm": True}, "midlayer.", "0.5.13"),
    (build.mla, {"norm_output": True}, "midlayer.", "0.5.13"),
]


@pytest.mark.parametrize(("base", "config", "names", "version"), NEEDED)
def test_a_drafter_needs_the_version_of_its_newest_feature(
    base: Callable[[], build.Checkpoint], config: dict[str, Any], names: str, version: str, tmp_path: Path
) -> None:
    drafter = base()
    drafter.config |= config
    drafter.rename(lambda name: name.replace("midlayer.", names))
    found = {f.id: f for f in inspect(drafter.save(tmp_path), engine_version=version)}["config.engine-version"]
    assert found.status == "pass"
    assert f"SGLang {version} or newer" in found.seen
    if version != "0.5.9":
        older = {f.id: f for f in inspect(tmp_path, engine_version="0.5.11")}["config.engine-version"]
        assert older.status == "fail"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.5.23", (0, 5, 23)),
        ("v0.5.10.post1", (0, 5, 10)),
        ("0.5.12rc1+cu13", (0, 5, 12)),
        ("main", None),
        ("", None),
    ],
)
def test_versions_are_read_leniently(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version
