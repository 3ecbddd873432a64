from pathlib import Path

import pytest

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.profiles import Gate, Speculation, load_profiles


def write(folder: Path, text: str, name: str = "specprobe.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_catalog_holds_the_founding_case(tmp_path: Path) -> None:
    profile = load_profiles(tmp_path).get("aq_k2")
    assert profile.target_name == "kimi_k25"
    assert profile.target.tp == 8
    assert profile.target.trust_remote_code
    assert profile.target.baseline == "stored"
    assert profile.drafter.speculation == Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
    assert profile.drafter.gate == Gate()
    assert profile.drafter.gate.min_headroom == 1.10


@pytest.mark.parametrize("name", ["aq_k2_mini", "aq_k2_mini_native", "scratch_k25_mini", "dense_mini"])
def test_mini_family_runs_on_a_cpu(name: str, tmp_path: Path) -> None:
    profile = load_profiles(tmp_path).get(name)
    assert "cpu" in profile.target.devices
    assert profile.workload == "mini"
    assert not profile.target.trust_remote_code


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    write(tmp_path, "[tool.specprobe.targets.kimi_k25]\ntp = 4\nbaseline = 82.0\n", "pyproject.toml")
    write(tmp_path, "[targets.kimi_k25]\ntp = 2\n")
    extra = write(tmp_path, "[drafters.aq_k2.gate]\nmin_headroom = 1.2\n", "extra.toml")
    profile = load_profiles(tmp_path, extra=extra).get("aq_k2")
    assert profile.target.tp == 2
    assert profile.target.baseline == 82.0
    assert profile.target.model == "moonshotai/Kimi-K2.5"
    assert profile.drafter.gate.min_headroom == 1.2
    assert profile.drafter.gate.p_reach == 0.80


def test_all_problems_are_said_at_once_and_name_the_nearest_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
[drafters.a]
source = "x"
target = "kimi_k52"
speculation = { num_step = 2, eagle_topk = 1, num_draft_tokens = 3 }
[drafters.b]
source = "x"
target = "kimi_k25"
speculation = { num_steps = 2, eagle_topk = 1, num_draft_tokens = 4 }
[drafters.c]
source = "x"
target = "kimi_k25"
speculation = { num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }
gate = { min_headrom = 1.2, accept_verdicts = ["fine"] }
[drafter.d]
source = "x"
""",
    )
    with pytest.raises(ProfileError) as caught:
        load_profiles(tmp_path)
    text = str(caught.value)
    assert "unknown key 'speculation.num_step'; did you mean 'num_steps'?" in text
    assert "drafters.a.speculation.num_steps: Field required" in text
    assert "num_draft_tokens must be num_steps + 1 = 3, not 4" in text
    assert "unknown key 'gate.min_headrom'; did you mean 'min_headroom'?" in text
    assert "drafters.c.gate.accept_verdicts.0" in text
    assert "unknown table [drafter]; did you mean 'drafters'?" in text


@pytest.mark.parametrize("kind", ["drafters", "targets"])
@pytest.mark.parametrize("name", ["../../escaped", ".hidden", "a b", "", "a/b", "a\\nb", "x" * 81])
def test_a_name_that_could_leave_the_log_folder_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    write(tmp_path, f'[{kind}."{name}"]\n')
    with pytest.raises(ProfileError, match=rf"{kind}\..* is no name: letters, digits"):
        load_profiles(tmp_path)


def test_a_target_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, '[drafters.aq_k2]\ntarget = "kimi_k2"\n')
    with pytest.raises(ProfileError, match=r"target 'kimi_k2' is not defined; did you mean '\w+'"):
        load_profiles(tmp_path)


def test_unreadable_file_is_a_problem_not_a_traceback(tmp_path: Path) -> None:
    path = write(tmp_path, "not toml [")
    with pytest.raises(ProfileError, match=str(path)):
        load_profiles(tmp_path)


@pytest.mark.parametrize("value", ['"2"', "true", "2.5", "0", "-1"])
def test_tp_is_a_whole_number(value: str, tmp_path: Path) -> None:
    write(tmp_path, f"[targets.kimi_k25]\ntp = {value}\n")
    with pytest.raises(ProfileError, match=r"targets\.kimi_k25\.tp"):
        load_profiles(tmp_path)


@pytest.mark.parametrize(
    ("steps", "topk", "tokens", "depth"), [(2, 1, 3, 2), (3, 4, 12, 3), (7, 4, 8, 7), (6, 3, 4, 3)]
)
def test_depth_is_the_smaller_of_steps_and_tokens(steps: int, topk: int, tokens: int, depth: int) -> None:
    assert Speculation(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens).depth == depth


NOT_FINITE = """
[{at}targets.t]
model = "m"
baseline = {number}
boot_timeout_s = {number}
[{at}drafters.d]
source = "s"
target = "t"
speculation = {{ num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }}
[{at}drafters.d.gate]
min_accept_length = {number}
min_speedup = {number}
min_tok_per_s = {number}
min_headroom = {number}
max_regression = {number}
p_reach = {number}
min_accept_length_by_workload = {{ code = {number} }}
"""


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_no_number_of_a_profile_is_infinite_or_none(tmp_path: Path, number: str) -> None:
    """``baseline = inf`` once passed, and the run died after all of its boots."""
    file = tmp_path / "pyproject.toml"
    file.write_text(NOT_FINITE.format(at="tool.specprobe.", number=number))
    with pytest.raises(ProfileError, match=r"pyproject\.toml has a number that is not finite"):
        load_profiles(tmp_path)
    file.unlink()
    write(tmp_path, NOT_FINITE.format(at="", number=number))
    with pytest.raises(ProfileError, match="a number that is not finite"):
        load_profiles(tmp_path)
