"""A checkpoint's identity: the same for links and copies, another for anything that it says it covers."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_specprobe.checkpoint.files.digest import digest, text_digest, writes_the_date
from pytest_specprobe.errors import CheckpointError
from tests.support import checkpoint_builder as build


def test_it_does_not_depend_on_name_or_links(tmp_path: Path) -> None:
    path = build.llama().save(tmp_path / "a")
    shutil.copytree(path, tmp_path / "b")
    (tmp_path / "c").mkdir()
    for file in path.iterdir():
        (tmp_path / "c" / file.name).symlink_to(file)
    assert digest(path) == digest(tmp_path / "b") == digest(tmp_path / "c")
    assert len(digest(path)) == 64


def test_files_beside_it_do_not_count(tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    before = digest(path)
    (path / "README.md").write_text("x")
    assert digest(path) == before


def test_config_weights_and_file_names_count(tmp_path: Path) -> None:
    seen = {digest(build.llama(seed).save(tmp_path / str(seed))) for seed in range(3)}
    made = build.llama()
    made.config["rope_theta"] = 1.0
    seen.add(digest(made.save(tmp_path / "theta")))
    path = build.llama().save(tmp_path / "renamed")
    (path / "model.safetensors").rename(path / "other.safetensors")
    seen.add(digest(path))
    assert len(seen) == 5


def test_weights_far_from_the_header_count(tmp_path: Path) -> None:
    made = build.llama()
    made.tensors["big"] = np.zeros(1 << 20, dtype=np.uint8)
    before = digest(made.save(tmp_path / "a"))
    made.tensors["big"][1 << 19 :] = 1
    assert digest(made.save(tmp_path / "b")) != before


def test_one_offset_counts(tmp_path: Path) -> None:
    made = build.llama()
    before = digest(made.save(tmp_path / "a"))
    made.tensors["d2t"][100] += 1
    assert digest(made.save(tmp_path / "b")) != before


def test_a_bare_config_has_one(tmp_path: Path) -> None:
    path = build.target().save(tmp_path)
    assert digest(path / "config.json") != digest(path)


def test_a_target_whose_shards_are_not_here_has_one(tmp_path: Path) -> None:
    bare = build.Checkpoint(build.target().config, {}).save(tmp_path / "bare")
    before = digest(bare, culprit="target")
    (bare / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    assert digest(bare, culprit="target") != before


@pytest.mark.parametrize("body", [b"", b"1234567", b"\xff" * 64, (1 << 20).to_bytes(8, "little")])
def test_unreadable_weights_are_an_error(body: bytes, tmp_path: Path) -> None:
    path = build.target().save(tmp_path)
    (path / "model.safetensors").write_bytes(body)
    with pytest.raises(CheckpointError) as caught:
        digest(path, culprit="target")
    assert caught.value.culprit == "target"


DATED = "{{ strftime_now('%d %b %Y') }}"


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json", "chat_template.json"])
def test_a_template_that_writes_the_date_is_seen(tmp_path: Path, name: str) -> None:
    assert not writes_the_date(tmp_path)
    (tmp_path / name).write_text("{{ messages }}")
    (tmp_path / "tokenizer.json").write_text(f'"{DATED}"')
    assert not writes_the_date(tmp_path), "a vocabulary may hold any word"
    (tmp_path / name).write_text(f"{DATED} {{{{ messages }}}}")
    assert writes_the_date(tmp_path)


def test_the_template_that_a_server_was_told_to_use_is_looked_at(tmp_path: Path) -> None:
    mine, before = tmp_path / "mine.jinja", text_digest(tmp_path / "none")
    mine.write_text(DATED)
    assert writes_the_date(tmp_path / "none", others=[mine])
    assert text_digest(tmp_path / "none", others=[mine]) != before
    assert not writes_the_date(tmp_path / "none", others=[Path("chatml")]), "a name that SGLang knows"


def test_texts_do_not_depend_on_weights_or_place(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{}")
    (one / "model-00001.safetensors").write_bytes(b"weights")
    assert text_digest(one) == text_digest(other)
    (other / "tokenizer.json").write_text("{ }")
    assert text_digest(one) != text_digest(other)
