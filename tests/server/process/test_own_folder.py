"""A server runs in a folder of its own: nothing that lies where pytest was started is imported or found there."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.errors import ServerError
from pytest_specprobe.probe.plan.device import engine
from pytest_specprobe.server.absolute_paths import absolute_variables, absolute_words
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.code_cache import VARIABLES, require_own
from pytest_specprobe.server.spec import ServerSpec

TELLER = """
import importlib.metadata, json, os, sys
told = {"cwd": os.getcwd(), "path": sys.path, "argv": sys.argv, "env": dict(os.environ)}
told["plugins"] = [p.name for p in importlib.metadata.entry_points(group="sglang.srt.plugins")]
with open(sys.argv[sys.argv.index("--download-dir") + 1] + "/told.json", "w") as file:
    json.dump(told, file)
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with modules of well-known names and an SGLang plug-in."""
    folder = tmp_path / "hostile"
    (folder / "evil-1.0.dist-info").mkdir(parents=True)
    (folder / "evil-1.0.dist-info" / "entry_points.txt").write_text("[sglang.srt.plugins]\nevil = evil:run\n")
    (folder / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    for name in ("sglang-9.9.9", "torch-9.9.9"):
        (folder / f"{name}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name[:-6]}\nVersion: 9.9.9\n"
        (folder / f"{name}.dist-info" / "METADATA").write_text(metadata)
    for name in ("json", "torch", "evil"):
        (folder / f"{name}.py").write_text("import os; open(os.environ['HOME'] + '/ran', 'w').close()\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # torch sets it in the process that imports it, as tests of the engine do
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    return tmp_path


def test_no_child_imports_from_the_working_directory(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as SGLang is, by ``-m``, from an absolute entry of PYTHONPATH; the other entries are the folder itself."""
    modules = hostile / "modules"
    (modules / "sglang").mkdir(parents=True)
    (modules / "sglang" / "__init__.py").write_text("")
    (modules / "sglang" / "launch_server.py").write_text(TELLER)
    monkeypatch.setenv("PYTHONPATH", f":{modules}:.")
    Path("template.jinja").write_text("")
    args = ("--download-dir", "../", "--chat-template=template.jinja", "--tokenizer-path", "org/name")
    spec = ServerSpec(model="m", python=sys.executable, server_args=args)
    with pytest.raises(ServerError):
        boot(spec, log_path=hostile / "log", timeout_s=60)
    told: dict[str, Any] = json.loads((hostile / "told.json").read_text())
    assert not (hostile / "ran").exists()
    here = str(Path.cwd())
    assert told["cwd"] != here
    assert not {here, "", "."} & set(told["path"])
    assert "evil" not in told["plugins"]
    assert f"--chat-template={here}/template.jinja" in told["argv"]
    assert "org/name" in told["argv"]
    assert (hostile / "cache" / "specprobe" / "torchinductor").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("path", ["", ":", "."])
def test_the_child_that_is_asked_for_versions_finds_none_there(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    found = engine(Path(sys.executable))
    assert "9.9.9" not in (found.version, found.torch)
    assert not (hostile / "ran").exists()


def test_relative_paths_mean_what_they_meant(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "triton").mkdir()
    words = (
        "py", "-m", "x", "--tokenizer-path", "there", "--attention-backend", "triton", "--chat-template", "chatml",
        "--crash-dump-folder", "new", "--crash-dump-folder=new", "--lora-paths", "a=there", "there", "gone",
        "--hicache-storage-backend-extra-config", "@there", "--model-path", "s3://b/m", "--x-dir", "s3://b/m",
        "--config", '{"a": "b=c"}', "--config", "/abs",
    )  # fmt: skip
    there, new = f"{tmp_path}/there", f"{tmp_path}/new"
    assert absolute_words(words, here=tmp_path) == (
        "py", "-m", "x", "--tokenizer-path", there, "--attention-backend", "triton", "--chat-template", "chatml",
        "--crash-dump-folder", new, f"--crash-dump-folder={new}", "--lora-paths", f"a={there}", there, "gone",
        "--hicache-storage-backend-extra-config", f"@{there}", "--model-path", "s3://b/m", "--x-dir", "s3://b/m",
        "--config", '{"a": "b=c"}', "--config", "/abs",
    )  # fmt: skip
    assert absolute_words(("bin/py", "-m"), here=tmp_path) == (f"{tmp_path}/bin/py", "-m")
    env = {
        "HF_HOME": "there", "X_DIR": "new", "X_FILE": "there", "PATH": "there:/bin", "OMP_NUM_THREADS": "there",
        "Y_FILE": "gone", "Y_DIR": "~/x", "Z_DIR": "s3://b", "Z_HOME": "/abs", "HF_HUB_CACHE": "",
    }  # fmt: skip
    made = {"HF_HOME": there, "X_DIR": new, "X_FILE": there}
    assert absolute_variables(env, here=tmp_path) == env | made


def test_a_folder_of_compiled_code_that_is_missing_is_made_private(tmp_path: Path) -> None:
    require_own({VARIABLES[0]: str(tmp_path / "a" / "b"), VARIABLES[1]: os.devnull, "PATH": "/bin"})
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to("a")
    require_own({VARIABLES[0]: str(tmp_path / "link")})


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_of_compiled_code_that_others_may_write_is_refused(tmp_path: Path, name: str, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(ServerError, match="writable by others") as raised:
        require_own({name: str(tmp_path / "shared")})
    assert raised.value.culprit == "machine"
    assert f"{name}: {tmp_path}/shared" in str(raised.value)
    assert "chmod 700" in str(raised.value)


def test_a_folder_or_link_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(mine)
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    if os.getuid() == 0:
        # root's are trusted, so the folder must be somebody else's
        os.chown(mine, 1234, -1)
        os.chown(tmp_path / "link", 1234, -1, follow_symlinks=False)
    for path in (mine, tmp_path / "link"):
        with pytest.raises(ServerError, match="belongs to user"):
            require_own({VARIABLES[0]: str(path)})
    with pytest.raises(ServerError, match="cannot be used"):
        require_own({VARIABLES[0]: "/proc/nowhere"})
    with pytest.raises(ServerError, match="not absolute"):
        require_own({VARIABLES[0]: "~/.cache/x"})
