"""Staging: the source untouched, the copy complete, the blind control blind, two processes at once safe."""

import hashlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pytest_specprobe.errors import CheckpointError, StagingError
from pytest_specprobe.staging import stage
from pytest_specprobe.staging.copy import copy_new

stages = importlib.import_module("pytest_specprobe.staging.stage")

FC = np.arange(1, 25, dtype=np.float32).reshape(2, 12)
OTHER = np.ones((3, 2), dtype=np.float32)


def drafter(path: Path, **config: Any) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"], **config}))
    save_file({"fc.weight": FC, "fc.bias": FC[0], "norm.weight": OTHER}, path / "model.safetensors")
    (path / "tokenizer.json").write_text("{}")
    (path / "training_state.pt").write_bytes(b"pickle")
    (path / "README.md").write_text("card")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return drafter(tmp_path / "aq", max_position_embeddings=1024)


def fingerprint(path: Path) -> dict[str, tuple[str, int, int, int]]:
    return {
        str(f.relative_to(path)): (
            hashlib.sha256(f.read_bytes()).hexdigest(),
            f.stat().st_mtime_ns,
            f.stat().st_ino,
            f.stat().st_mode,
        )
        for f in sorted(path.rglob("*"))
        if f.is_file()
    }


@pytest.mark.parametrize("positions", [None, 2048])
@pytest.mark.parametrize("blind", [False, True])
def test_a_drafters_own_code_is_neither_staged_nor_named(
    tmp_path: Path, *, positions: int | None, blind: bool
) -> None:
    """SGLang follows ``auto_map`` on the permission that the profile gives the target."""
    theirs = {"AutoConfig": "configuration_x.Y", "AutoModel": "else/where--modeling_x.Z"}
    nested = {"hidden_size": 4, "auto_map": theirs}
    path = drafter(tmp_path / "own", auto_map=theirs, text_config=nested, max_position_embeddings=1024)
    for name in ("configuration_x.py", "modeling_x.py"):
        (path / name).write_text("raise SystemExit('ran')")
    before = fingerprint(path)
    staged = stage(path, cache=tmp_path / "cache", target_positions=positions, blind=blind)
    assert not [f.name for f in staged.path.iterdir() if f.suffix == ".py"]
    written = (staged.path / "config.json").read_text()
    assert "auto_map" not in written
    assert json.loads(written)["text_config"]["hidden_size"] == 4
    edits = {key: staged.patched[key] for key in ("auto_map", "text_config.auto_map")}
    assert edits == dict.fromkeys(edits, (theirs, None))
    assert fingerprint(path) == before
    assert stage(path, cache=tmp_path / "cache", target_positions=positions, blind=blind) == staged


ASK_CONFIG = "import sys; from transformers import AutoConfig; print(AutoConfig.from_pretrained(sys.argv[1], {}))"


def test_what_reads_the_staged_config_as_sglang_does_runs_none_of_it(tmp_path: Path) -> None:
    """SGLang's loader of configs, on the permission of a target that needs its own code."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed (extra: sglang)")
    path = drafter(tmp_path / "own", model_type="llama", auto_map={"AutoConfig": "configuration_x.Y"})
    (path / "configuration_x.py").write_text("raise SystemExit('the code of the drafter ran')")
    staged = stage(path, cache=tmp_path / "cache", target_positions=4096)
    for place, ran in ((path, True), (staged.path, False)):
        asked = subprocess.run(
            [sys.executable, "-c", ASK_CONFIG.format("trust_remote_code=True"), str(place)],
            env=os.environ | {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("the code of the drafter ran" in asked.stderr) is ran, asked.stderr
        assert ('"model_type": "llama"' in asked.stdout) is not ran, asked.stderr


@pytest.mark.parametrize("blind", [False, True])
def test_the_source_is_never_written(source: Path, tmp_path: Path, *, blind: bool) -> None:
    before = fingerprint(source)
    stage(source, cache=tmp_path / "cache", target_positions=2048, blind=blind)
    assert fingerprint(source) == before


def test_only_what_a_server_needs_is_staged_and_shares_no_file_with_the_source(source: Path, tmp_path: Path) -> None:
    staged = stage(source, cache=tmp_path / "cache", target_positions=2048)
    assert {f.name for f in staged.path.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "specprobe-staged.json",
    }
    for file in staged.path.iterdir():
        status = file.lstat()
        assert (status.st_nlink, status.st_mode) == (1, 0o100600), file.name
    assert staged.patched == {"max_position_embeddings": (1024, 2048)}
    config = json.loads((staged.path / "config.json").read_text())
    assert config == {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}


def test_a_second_run_finds_the_same_directory_and_the_edits_name_it(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = stage(source, cache=cache, target_positions=2048)
    inode = first.path.stat().st_ino
    again = stage(source, cache=cache, target_positions=2048)
    assert again == first
    assert again.path.stat().st_ino == inode
    others = {
        stage(source, cache=cache, target_positions=4096).path,
        stage(source, cache=cache, target_positions=None).path,
        stage(source, cache=cache, target_positions=2048, blind=True).path,
    }
    assert len(others | {first.path}) == 4


def test_the_digest_follows_content_and_not_the_place(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    twin = drafter(tmp_path / "elsewhere" / "aq", max_position_embeddings=1024)
    first, second = (stage(p, cache=cache, target_positions=2048) for p in (source, twin))
    assert first.source_digest == second.source_digest
    save_file({"fc.weight": FC + 1, "norm.weight": OTHER}, twin / "model.safetensors")
    changed = stage(twin, cache=cache, target_positions=2048)
    assert changed.source_digest != first.source_digest
    assert changed.path != first.path


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: (p / "config.json").write_text("{}"),
        lambda p: (p / "model.safetensors").unlink(),
        lambda p: (p / "specprobe-staged.json").unlink(),
        lambda p: (p / "modeling_evil.py").write_text("raise SystemExit"),
    ],
    ids=["config-edited", "weights-gone", "manifest-gone", "file-added"],
)
def test_a_damaged_staged_directory_is_made_anew(source: Path, tmp_path: Path, damage: Any) -> None:
    staged = stage(source, cache=tmp_path / "cache", target_positions=2048)
    expected = fingerprint(staged.path).keys()
    damage(staged.path)
    again = stage(source, cache=tmp_path / "cache", target_positions=2048)
    assert again.path == staged.path
    assert fingerprint(again.path).keys() == expected
    assert json.loads((again.path / "config.json").read_text())["max_position_embeddings"] == 2048
    assert [f.name for f in (tmp_path / "cache").iterdir() if f.name.endswith(".tmp")] == []


def test_blind_zeroes_fc_and_nothing_else(source: Path, tmp_path: Path) -> None:
    staged = stage(source, cache=tmp_path / "cache", target_positions=2048, blind=True)
    tensors = load_file(staged.path / "model.safetensors")
    assert not tensors["fc.weight"].any()
    assert not tensors["fc.bias"].any()
    assert (tensors["norm.weight"] == OTHER).all()
    original, edited = ((p / "model.safetensors").read_bytes() for p in (source, staged.path))
    assert len(original) == len(edited)
    assert sum(a != b for a, b in zip(original, edited, strict=True)) <= (FC.size + FC[0].size) * 4
    assert (load_file(source / "model.safetensors")["fc.weight"] == FC).all()


def test_a_blind_directory_whose_fc_came_back_is_made_anew(source: Path, tmp_path: Path) -> None:
    staged = stage(source, cache=tmp_path / "cache", target_positions=None, blind=True)
    shard = staged.path / "model.safetensors"
    shard.unlink()
    os.link(source / "model.safetensors", shard)
    again = stage(source, cache=tmp_path / "cache", target_positions=None, blind=True)
    assert not load_file(again.path / "model.safetensors")["fc.weight"].any()
    assert (load_file(source / "model.safetensors")["fc.weight"] == FC).all()


def test_a_manifest_that_vouches_for_seeing_weights_does_not_make_them_blind(source: Path, tmp_path: Path) -> None:
    staged = stage(source, cache=tmp_path / "cache", target_positions=None, blind=True)
    (staged.path / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    manifest = json.loads((staged.path / "specprobe-staged.json").read_text())
    manifest["files"]["model.safetensors"] = hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()
    (staged.path / "specprobe-staged.json").write_text(json.dumps(manifest))
    again = stage(source, cache=tmp_path / "cache", target_positions=None, blind=True)
    assert not load_file(again.path / "model.safetensors")["fc.weight"].any()


def test_blind_edits_only_the_shard_that_holds_fc(tmp_path: Path) -> None:
    source = tmp_path / "sharded"
    source.mkdir()
    (source / "config.json").write_text('{"max_position_embeddings": 8}')
    save_file({"fc.weight": FC}, source / "a.safetensors")
    save_file({"norm.weight": OTHER}, source / "b.safetensors")
    save_file({"ghost.weight": OTHER}, source / "c.safetensors")
    index = {"weight_map": {"fc.weight": "a.safetensors", "norm.weight": "b.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    staged = stage(source, cache=tmp_path / "cache", target_positions=8, blind=True)
    assert not load_file(staged.path / "a.safetensors")["fc.weight"].any()
    assert (load_file(source / "a.safetensors")["fc.weight"] == FC).all()
    assert (staged.path / "b.safetensors").read_bytes() == (source / "b.safetensors").read_bytes()
    assert not (staged.path / "c.safetensors").exists()


def test_blind_without_fc_is_refused(tmp_path: Path) -> None:
    source = drafter(tmp_path / "no_fc")
    save_file({"norm.weight": OTHER}, source / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no fc\.weight"):
        stage(source, cache=tmp_path / "cache", target_positions=None, blind=True)


def test_a_hub_snapshot_of_links_is_staged_with_its_real_files(tmp_path: Path) -> None:
    real = drafter(tmp_path / "real", max_position_embeddings=16)
    blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        blob = blobs / hashlib.sha256(name.encode()).hexdigest()
        blob.write_bytes((real / name).read_bytes())
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    staged = stage(snapshot, cache=tmp_path / "cache", target_positions=32)
    assert not (staged.path / "model.safetensors").is_symlink()
    assert load_file(staged.path / "model.safetensors").keys() == {"fc.weight", "fc.bias", "norm.weight"}


def _overwrite(staged: Path, _: Path) -> None:
    with staged.open("r+b") as file:
        file.write(b"written through the staged name")


def _empty(staged: Path, _: Path) -> None:
    os.truncate(staged, 0)


def _change_mode(staged: Path, _: Path) -> None:
    staged.chmod(0o666)


def _become_a_hard_link(staged: Path, source: Path) -> None:
    staged.unlink()
    os.link(source, staged)


def _become_a_symbolic_link(staged: Path, source: Path) -> None:
    staged.unlink()
    staged.symlink_to(source)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("how", [_overwrite, _empty, _change_mode, _become_a_hard_link, _become_a_symbolic_link])
@pytest.mark.parametrize("clones", [True, False], ids=["clones", "copies"])
def test_nothing_done_through_the_staged_name_reaches_the_source_or_the_next_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any, *, blind: bool, clones: bool
) -> None:
    """Root included, whom no mode stops. ``clones`` asks the file system, which may copy all the same."""
    if not clones:
        monkeypatch.setattr("pytest_specprobe.staging.copy._FICLONE", 0)
    before = fingerprint(source)
    staged = stage(source, cache=tmp_path / "cache", target_positions=None, blind=blind)
    whole = fingerprint(staged.path)
    how(staged.path / "model.safetensors", source / "model.safetensors")
    assert fingerprint(source) == before
    again = stage(source, cache=tmp_path / "cache", target_positions=None, blind=blind)
    assert {name: words[0] for name, words in fingerprint(again.path).items()} == {n: w[0] for n, w in whole.items()}
    assert {words[3] for words in fingerprint(again.path).values()} == {0o100600}
    assert fingerprint(source) == before


def test_a_source_that_changes_while_it_is_staged_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_new

    def late(file: Path, staged: Path) -> str:
        if file.suffix == ".safetensors":
            file.write_bytes(b"another export")
        return copy(file, staged)

    monkeypatch.setattr(stages, "copy_new", late)
    with pytest.raises(StagingError, match=r"model\.safetensors changed while it was staged") as caught:
        stage(source, cache=tmp_path / "cache", target_positions=None)
    assert caught.value.culprit == "drafter-file"
    assert [f for f in tmp_path.glob("cache/*") if not f.name.startswith(".")] == []


def _absent(path: Path) -> None:
    (path / "config.json").unlink()


def _escaping_index(path: Path) -> None:
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"fc.weight": "../secret.safetensors"}}')


def _link_to_secret(path: Path) -> None:
    (path.parent / "id_rsa").write_text("PRIVATE KEY")
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.json").symlink_to(path.parent / "id_rsa")


def _only_pickles(path: Path) -> None:
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def _fifo(path: Path) -> None:
    (path / "model.safetensors").unlink()
    os.mkfifo(path / "model.safetensors")


def _missing_shard(path: Path) -> None:
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"fc.weight": "gone.safetensors"}}')


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_absent, r"config\.json is missing"),
        (_escaping_index, "outside its directory"),
        (_link_to_secret, "leads out of the checkpoint"),
        (_only_pickles, "only pickled weights"),
        (_fifo, "not a regular file"),
        (_missing_shard, r"gone\.safetensors is missing"),
        (lambda p: (p / "config.json").write_text("[]"), "not a JSON object"),
        (lambda p: (p / "config.json").write_text('{"max_position_embeddings": "x"}'), "not a positive integer"),
        (lambda p: (p / "config.json").write_text("[" * 100_000), "nested too deeply"),
    ],
    ids=["absent", "escape", "link-out", "pickles", "fifo", "shard-gone", "list", "length", "deep"],
)
def test_bad_checkpoints_are_named_and_leave_nothing(source: Path, tmp_path: Path, spoil: Any, message: str) -> None:
    spoil(source)
    with pytest.raises(CheckpointError, match=message):
        stage(source, cache=tmp_path / "cache", target_positions=2048)
    assert [f for f in tmp_path.glob("cache/*") if not f.name.startswith(".")] == []


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint directory"):
        stage(tmp_path / "nowhere", cache=tmp_path / "cache", target_positions=None)


def test_a_cache_that_cannot_be_written_is_a_staging_error(source: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the cache should be")
    with pytest.raises(StagingError) as caught:
        stage(source, cache=tmp_path / "cache", target_positions=None)
    assert caught.value.culprit == "machine"


@pytest.mark.parametrize("room", [64, 300], ids=["no config", "half the weights"])
def test_a_full_disk_is_a_staging_error_and_leaves_nothing_half_made(source: Path, tmp_path: Path, room: int) -> None:
    """A real ENOSPC would need a file system of our own; a file size limit fails the same write call."""
    script = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        from pytest_specprobe.errors import StagingError
        from pytest_specprobe.staging import stage
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
        try:
            stage(Path(sys.argv[1]), cache=Path(sys.argv[2]), target_positions=2048, blind=True)
        except StagingError as error:
            print(error.culprit)
    """)
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", script, source, cache, str(room)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "machine"
    assert [f.name for f in cache.iterdir() if not f.name.endswith(".lock")] == []


def test_two_processes_at_once_make_one_directory(source: Path, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from pytest_specprobe.staging import stage
        sys.stdin.read(1)
        print(stage(Path(sys.argv[1]), cache=Path(sys.argv[2]), target_positions=2048, blind=True).path)
    """)
    cache = tmp_path / "cache"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, source, cache], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("g")
        worker.stdin.flush()
    paths = {worker.communicate(timeout=60)[0].strip() for worker in workers}
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(paths) == 1
    assert [f.name for f in cache.iterdir() if not f.name.endswith(".lock")] == [Path(paths.pop()).name]


def test_what_a_killed_run_left_half_made_is_cleared(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    name = stage(source, cache=cache, target_positions=None).path
    (name / "config.json").unlink()
    half_made = cache / f".{name.name}.killed01.tmp"
    half_made.mkdir()
    (half_made / "model.safetensors").write_bytes(b"half")
    stage(source, cache=cache, target_positions=None)
    assert not half_made.exists()
