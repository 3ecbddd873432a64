"""A plan says that everything needed is here only where it is; a run says the same before it boots anything."""

import json
import shutil
from pathlib import Path

import pytest

from pytest_specprobe.active import _ORDER, SUITE
from pytest_specprobe.probe.printed_plan import CHECKS
from tests.support.held import stand_in

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROFILE = """
[targets.t]
model = "{target}"
devices = ["cpu"]
tp = {tp}

[drafters.d]
source = "{drafter}"
target = "t"
speculation = {{ num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }}
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with a drafter, a target and an interpreter of its own."""
    for source, name in (("dense_mini", "drafter"), ("mini_llama", "target")):
        shutil.copytree(FIXTURES / source, pytester.path / name)
    stand_in(pytester.path / "python")
    (pytester.path / "specprobe.toml").write_text(PROFILE.format(target="./target", drafter="./drafter", tp=1))
    return pytester


def run(project: pytest.Pytester, *more: str) -> pytest.RunResult:
    booted = ("--specprobe-device=cpu", f"--specprobe-python={project.path / 'python'}")
    owned = () if any(option.startswith("--specprobe-server") for option in more) else booted
    return project.runpytest_subprocess("--specprobe-drafter=d", *owned, *more)


def test_what_is_whole_is_said_to_be(project: pytest.Pytester) -> None:
    result = run(project, "--specprobe-plan")
    result.stdout.fnmatch_lines(["  everything needed is here"])
    result.stdout.no_fnmatch_line("  missing *")


def weights_away(folder: Path) -> None:
    (folder / "target" / "model.safetensors").unlink()


def shard_away(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "target" / "model.safetensors.index.json").write_text(json.dumps(index))


def too_many_ranks(folder: Path) -> None:
    (folder / "specprobe.toml").write_text(PROFILE.format(target="./target", drafter="./drafter", tp=3))


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (weights_away, "[[]target[]] target */target holds no weights: fetch the weights of ./target *"),
        (shard_away, "[[]target[]] target */target lacks model-2.safetensors of its index: fetch *"),
        (too_many_ranks, "[[]launch-flags[]] tp = 3 does not divide num_attention_heads = * of the target: *"),
    ],
    ids=["no weights", "a shard away", "too many ranks"],
)
def test_a_boot_that_would_die_is_not_tried(project: pytest.Pytester, spoil: object, problem: str) -> None:
    assert callable(spoil)
    spoil(project.path)
    planned = run(project, "--specprobe-plan")
    planned.stdout.fnmatch_lines([f"  missing       {problem}", "  this plan cannot run here yet"])
    probed = run(project)
    assert probed.ret == 11
    probed.stdout.fnmatch_lines([f"*d cannot be probed here: {problem}*"])
    assert not list((project.path / ".specprobe" / "logs").glob("*.log")), "nothing was booted"


@pytest.mark.parametrize("options", [("--specprobe-static",), ("--specprobe-server=http://127.0.0.1:1",)], ids=str)
def test_what_boots_nothing_needs_no_weights_of_the_target(
    project: pytest.Pytester, options: tuple[str, ...]
) -> None:
    weights_away(project.path)
    result = run(project, "--specprobe-plan", *options)
    result.stdout.fnmatch_lines(["  everything needed is here"])


def test_a_drafter_of_pickles_is_missing_its_weights(project: pytest.Pytester) -> None:
    folder = project.path / "drafter"
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    result = run(project, "--specprobe-plan")
    result.stdout.fnmatch_lines(
        ["  missing       [[]drafter-file[]] * has only pickled weights *", "  this plan cannot run here yet"]
    )


def test_a_hub_id_whose_weights_were_never_fetched(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = project.path / "hub"
    snapshot = hub / "models--org--target" / "snapshots" / ("0" * 40)
    shutil.copytree(FIXTURES / "mini_llama", snapshot, ignore=shutil.ignore_patterns("*.safetensors"))
    (hub / "models--org--target" / "refs").mkdir()
    (hub / "models--org--target" / "refs" / "main").write_text("0" * 40)
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    (project.path / "specprobe.toml").write_text(PROFILE.format(target="org/target", drafter="./drafter", tp=1))
    result = run(project, "--specprobe-plan")
    result.stdout.fnmatch_lines(
        ["  missing       [[]target[]] * holds no weights: fetch the weights of org/target *"]
    )


def test_flags_in_one_word_are_refused_by_the_plan(project: pytest.Pytester) -> None:
    file = project.path / "specprobe.toml"
    words = 'tp = 1\nserver_args = ["--mem-fraction-static 0.4"]'
    file.write_text(file.read_text().replace("tp = 1", words))
    result = run(project, "--specprobe-plan")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*server_args holds '--mem-fraction-static 0.4' in one word; write *"])


def test_the_plan_lists_every_shipped_module_in_order() -> None:
    listed = tuple(line.split()[0] for line in CHECKS)
    assert listed == _ORDER
    assert set(listed) == {path.stem for path in SUITE.glob("test_*.py")}
