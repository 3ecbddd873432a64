"""What a plan says a probe costs: known from recorded runs, or said to be unknown."""

import json
from pathlib import Path

import pytest

from pytest_specprobe.probe.plan.cost import Boot, Price, copied_bytes, rest_of_last_run
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server import boot_times
from pytest_specprobe.server.spec import ServerSpec
from tests.support.simulated_reports import PHASES, World, entry, report

FIXTURES = Path(__file__).parents[2] / "fixtures"
BOOTS = (Boot("drafter", 600.0), Boot("baseline", 540.0))


def test_gpu_minutes_are_all_gpus_from_the_first_boot_to_the_end(tmp_path: Path) -> None:
    price = Price(boots=BOOTS, rest_s=660.0, gpus=8, copied=0)
    assert price.total_s == 1800
    shown = list(price.lines(source=tmp_path))
    assert "boots         2: drafter (last time 10 min), baseline (last time 9 min)" in shown[0]
    assert "about 30 min" in shown[1]
    assert "about 240: 8 GPU(s)" in shown[2]


@pytest.mark.parametrize(
    ("boots", "rest_s", "says"),
    [
        (BOOTS, None, "time          unknown: no run of this drafter is recorded"),
        ((Boot("drafter", None),), 60.0, "time          60 s beside the boots"),
    ],
)
def test_what_no_run_has_shown_is_unknown(
    boots: tuple[Boot, ...], rest_s: float | None, says: str, tmp_path: Path
) -> None:
    price = Price(boots=boots, rest_s=rest_s, gpus=1, copied=0)
    assert price.total_s is None
    shown = "\n".join(price.lines(source=tmp_path))
    assert says in shown
    assert "GPU-minutes   unknown" in shown


def test_the_last_run_is_read_without_its_boots(tmp_path: Path) -> None:
    assert rest_of_last_run(tmp_path, drafter="aq_k2_mini") is None
    (tmp_path / "report.json").write_text(json.dumps(report(entry(World()))))
    rest = rest_of_last_run(tmp_path, drafter="aq_k2_mini")
    assert rest == pytest.approx(sum(s for name, _, s in PHASES if name != "boot"))
    assert rest_of_last_run(tmp_path, drafter="another") is None


def test_the_weights_are_copied_and_those_of_a_blind_control_too() -> None:
    drafter = FIXTURES / "aq_k2_mini"
    size = (drafter / "model.safetensors").stat().st_size
    assert copied_bytes(drafter, blind=False) == size
    assert copied_bytes(drafter, blind=True) == 2 * size
    assert copied_bytes(None, blind=True) == copied_bytes(drafter / "nowhere", blind=True) == 0


def test_a_plan_prices_the_run_from_what_was_seen(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line per cost; a boot seen before is told with its seconds, a stored baseline may save one."""
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(pytester.path / "state"))
    plain = ServerSpec(model=str(FIXTURES / "mini_llama"), device="cpu")
    boot_times.remember(plain, 21.0)
    chain = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
    boot_times.remember(ServerSpec(model=plain.model, drafter=Path("d"), speculation=chain, device="cpu"), 25.0)
    result = pytester.runpytest_subprocess(
        "--specprobe-drafter=dense_mini", "--specprobe-device=cpu", "--specprobe-plan"
    )
    result.stdout.fnmatch_lines(
        [
            "  boots         3: drafter (last time 25 s), blind control (last time 25 s), baseline (last time 21 s)",
            "  time          unknown: no run of this drafter is recorded in *.specprobe",
            "  disk          * MB copied for staging; cloned where the file system can",
        ]
    )
    result.stdout.no_fnmatch_line("*GPU-minutes*")
    again = pytester.runpytest_subprocess(
        "--specprobe-drafter=dense_mini", "--specprobe-device=cpu", "--specprobe-baseline=82",
        "--no-specprobe-blind", "--specprobe-plan",
    )  # fmt: skip
    again.stdout.fnmatch_lines(["  boots         1: drafter (last time 25 s)", "* MB copied for staging*"])


def test_a_plan_counts_the_boots_that_room_costs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two servers fit and a third does not, the drafter's makes room for the sweep and boots again."""
    monkeypatch.setenv("SPECPROBE_STATE_DIR", str(pytester.path / "state"))
    (pytester.path / "specprobe.toml").write_text(
        '[targets.t]\nmodel = "fixtures://mini_llama"\ndevices = ["cuda"]\n'
        'server_args = ["--mem-fraction-static", "0.42"]\n'
        '[drafters.d]\nsource = "fixtures://dense_mini"\ntarget = "t"\n'
        "speculation = { num_steps = 2, eagle_topk = 1, num_draft_tokens = 3 }\n"
    )
    asked = ("--specprobe-drafter=d", "--specprobe-plan")
    swept = pytester.runpytest_subprocess(*asked, "--specprobe-sweep=1/1/2,3/1/4")
    swept.stdout.fnmatch_lines(
        [
            "  check         test_history *",
            (
                "  boots         4: drafter (not booted here yet), baseline (not booted here yet), "
                "drafter, steps 1, 2, 3 in one boot (not booted here yet), drafter again (not booted here yet)"
            ),
        ]
    )
    stored = pytester.runpytest_subprocess(*asked, "--specprobe-baseline=stored")
    stored.stdout.fnmatch_lines(["  boots         2: drafter (*), baseline (if needed, *)"])
