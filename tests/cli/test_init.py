"""``specprobe init``: what it writes is a profile that loads, grants nothing, and says what the files say."""

import json
import shutil
from pathlib import Path

import pytest

from pytest_specprobe.cli import main
from pytest_specprobe.probe.profile_template import profile_name
from pytest_specprobe.profiles import load_profiles

FIXTURES = Path(__file__).parents[2] / "fixtures"
DRAFTER, TARGET = FIXTURES / "aq_k2_mini", FIXTURES / "mini_k25"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_profile_loads_and_points_at_the_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(DRAFTER), str(TARGET), "--name", "mine"]) == 0
    assert "pytest --specprobe-drafter=mine --specprobe-plan" in capsys.readouterr().out
    profile = load_profiles(here).get("mine")
    assert Path(profile.drafter.source) == DRAFTER
    assert Path(profile.target.model) == TARGET
    assert profile.target.devices == ("cuda", "cpu")
    assert profile.target.baseline == "stored"
    assert not profile.target.trust_remote_code


def test_it_says_what_the_files_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(DRAFTER), str(TARGET), "--output", "-"]) == 0
    shown = capsys.readouterr().out
    assert "512 of 1,536 tokens can be drafted" in shown
    assert "max_position_embeddings 1,024, patched to 2,048" in shown
    assert "specprobe inspect: 0 errors" in shown


def test_an_existing_file_is_left_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "specprobe.toml").write_text("# mine\n")
    assert main(["init", str(DRAFTER), str(TARGET)]) == 2
    assert (here / "specprobe.toml").read_text() == "# mine\n"
    assert "there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ['we"ird', "sp ace", "dot.ted", "ünïcödé 😀", "tab\there", "del\x7f", "a" * 120, "..x"]
)
def test_any_directory_name_becomes_a_profile(here: Path, name: str) -> None:
    (here / name).symlink_to(DRAFTER)
    assert main(["init", name, str(TARGET)]) == 0
    profile = load_profiles(here).get(profile_name(here / name))
    assert Path(profile.drafter.source) == here / name


@pytest.mark.parametrize("name", ["a b", 'x"\n[evil]', "../up", "x" * 81])
def test_a_name_that_would_not_load_is_refused(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["init", str(DRAFTER), str(TARGET), "--name", name]) == 2
    assert "is no name" in capsys.readouterr().err
    assert not (here / "specprobe.toml").exists()


def test_remote_code_is_pointed_at_and_not_granted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = here / "remote"
    shutil.copytree(TARGET, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoConfig": "configuration_x.Y"}}))
    main(["init", str(DRAFTER), str(target)])
    assert "read them, then set true" in (here / "specprobe.toml").read_text()
    assert not load_profiles(here).targets["remote"].trust_remote_code
    capsys.readouterr()


def test_files_with_errors_are_written_down_and_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drafter = here / "bad"
    shutil.copytree(DRAFTER, drafter)
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps({**config, "vocab_size": 77}))
    assert main(["init", str(drafter), str(TARGET)]) == 1
    assert "FAULT  " in capsys.readouterr().out
    assert load_profiles(here).get("bad")


def test_no_such_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "nothing", str(TARGET)]) == 2
    assert "nothing" in capsys.readouterr().err
