"""A probe boots what its plan says: the same servers in the same order, for every baseline, with room and without."""

from pathlib import Path
from typing import Any

import pytest

from tests.characterization.adapter_probe import PLAIN_URL, URL, Script, planned, probe
from tests.characterization.world import World

# So fast that no setting of a sweep is left out as one that cannot win: it is not measured against anything better.
QUICK = World(prompts=9, verify_s=0.008)
SHARES = {"one fits": 0.85, "two fit": 0.42, "three fit": 0.3}
BASELINES = ("boot", "stored", "alternating", "none", 98.0, PLAIN_URL)
SWEEP = ("1/1/2", "3/1/4", "2/4/8")


def script(share: float | None = None, *, device: str = "cuda", **options: Any) -> Script:
    target = "" if share is None else f'server_args = ["--mem-fraction-static", "{share}"]'
    steps = ("acceptance", "throughput", "curve", *(["sweep"] if "sweep" in options else []))
    return Script(world=QUICK, device=device, target=target, options=options, steps=steps)


def done(report: dict[str, Any]) -> dict[str, list[str]]:
    return {
        entry["name"]: [
            phase["what"]
            for phase in entry["phases"]
            if phase["name"] == "boot" and not phase["what"].startswith("attach to")
        ]
        for entry in report["drafters"]
    }


def hold(asked: Script, folder: Path) -> list[str]:
    """Run what was planned; return the boots of the first drafter."""
    plan = planned(asked, folder)
    report = probe(asked, folder)["report"]
    boots = done(report)
    for entry in report["drafters"]:
        spared = {f"drafter {row['setting']}" for row in entry["sweep"] if row["how"] == "skipped"}
        expected = [what for what, unsure in plan[entry["name"]] if not (unsure and what in spared)]
        assert boots[entry["name"]] == expected
    return next(iter(boots.values()))


@pytest.mark.parametrize("sweep", [(), SWEEP], ids=["no sweep", "sweep"])
@pytest.mark.parametrize("blind", [False, True], ids=["no blind", "blind"])
@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("baseline", BASELINES, ids=str)
def test_every_baseline_with_and_without_room(
    baseline: Any, share: float, blind: bool, sweep: tuple[str, ...], tmp_path: Path
) -> None:
    more: dict[str, Any] = {"sweep": sweep} if sweep else {}
    boots = hold(script(share, baseline=baseline, blind=blind, **more), tmp_path)
    # what the policy is, in numbers: the plan and the run could be wrong together
    apart = baseline == "alternating" or (baseline in {"boot", "stored"} and share == 0.85)
    beside = baseline in {"boot", "stored"} and not apart
    again = apart + (blind and share == 0.85) + (bool(sweep) and (share == 0.85 or (beside and share == 0.42)))
    assert boots.count("baseline") == (apart or beside)
    assert boots.count("blind control") == blind
    assert boots.count("drafter again") == again


def test_a_stored_baseline_spares_its_boot_in_plan_and_run(tmp_path: Path) -> None:
    asked = script(0.42, baseline="stored")
    assert "baseline" in hold(asked, tmp_path)
    assert hold(asked, tmp_path) == ["drafter"]


@pytest.mark.parametrize("baseline", ["boot", "alternating"])
def test_each_level_alternates_anew(baseline: str, tmp_path: Path) -> None:
    boots = hold(script(0.42, baseline=baseline, concurrency=(1, 4)), tmp_path)
    assert boots.count("baseline") == (2 if baseline == "alternating" else 1)


def test_two_drafters_share_a_baseline(tmp_path: Path) -> None:
    """The second one's blind control has to make room beside it."""
    asked = Script(
        world=QUICK,
        names=("one", "two"),
        device="cuda",
        target='server_args = ["--mem-fraction-static", "0.42"]',
        options={"blind": True, "baseline": "boot"},
    )
    hold(asked, tmp_path)
    plan = planned(asked, tmp_path)
    assert [what for what, _ in plan["one"]] == ["drafter", "blind control", "baseline"]
    assert [what for what, _ in plan["two"]] == ["drafter", "blind control", "drafter again"]


@pytest.mark.parametrize("options", [{}, {"server": URL}, {"server": URL, "baseline": "boot"}], ids=str)
def test_a_cpu_always_has_room_and_an_attached_server_is_not_booted(options: dict[str, Any], tmp_path: Path) -> None:
    boots = hold(script(device="cpu", blind=True, **options), tmp_path)
    assert boots == ([] if options else ["drafter", "blind control", "baseline"])
