"""Golden file of sweeps: a row per setting, the best one, and which settings cannot win."""

from functools import partial
from typing import Any

from tests.characterization import adapter
from tests.characterization.golden import block
from tests.characterization.world import Row, World, changed, one_pass, prompt_id

DEPTHS = {"1/1/2": 1, "2/1/3": 2, "3/1/4": 3, "2/4/8": 2, "3/4/12": 3, "5/1/6": 5}


def _rows(setting: str, round_s: float, *, luck: str = "") -> list[Row]:
    """Requests at this setting whose rounds last so long; 36 prompts at an acceptance of 0.6."""
    depth = DEPTHS[setting]
    world = World(prompts=36, verify_s=round_s - depth * 0.001)
    return one_pass(world, accept=0.6, depth=depth, tokens=48, luck=luck)


def _plain() -> list[Row]:
    return one_pass(World(prompts=36), accept=None, tokens=48)


def _trial(
    setting: str, round_s: float, how: str = "one-boot", *, base: bool = True, apart: bool = False
) -> dict[str, Any]:
    return {
        "setting": setting,
        "how": how,
        "rows": _rows(setting, round_s),
        "own": _rows("2/1/3", 0.014, luck="own"),
        "baseline": _plain() if base else None,
        "apart": apart,
    }


def _uneven(rows: list[Row]) -> list[Row]:
    """Every second request lasts longer, the others less."""
    return [
        changed(row, last_s=row["first_s"] + (row["last_s"] - row["first_s"]) * (1.25 if at % 2 else 0.8))
        for at, row in enumerate(rows)
    ]


def _counted(rows: list[Row]) -> list[Row]:
    """One text is another, and one has the same tokens by other rounds."""
    h = rows[2]["histogram"]
    other = changed(rows[2], histogram=(h[0] + 1, h[1] - 2, h[2] + 1))
    return [changed(rows[0], output_ids=(1, 2)), rows[1], other, *rows[3:]]


def sweeps() -> str:
    own = _trial("2/1/3", 0.014)
    probe = {"rows": _rows("2/1/3", 0.014), "blind": one_pass(World(prompts=36), accept=0.05, tokens=48)}
    blind = {"rows": _rows("2/1/3", 0.014), "blind": _rows("2/1/3", 0.014)}
    deep = {"rows": _rows("5/1/6", 0.02), "depth": 5}
    same = (_rows("2/1/3", 0.014), _rows("2/1/3", 0.014, luck="alone"))
    slower = (_rows("2/1/3", 0.016), _rows("2/1/3", 0.014, luck="alone"))
    cases: dict[str, dict[str, Any]] = {
        "one surely faster, on a shared boot that is as fast": {
            "trials": [own, _trial("1/1/2", 0.009), _trial("3/1/4", 0.022)],
            "probe": probe,
            "parity": same,
            "skipped": {},
        },
        "a shared boot that is slower": {
            "trials": [own, _trial("1/1/2", 0.0135), _trial("2/4/8", 0.02, "own-boot")],
            "probe": probe,
            "parity": slower,
            "skipped": {},
        },
        "a shared boot that may be as fast": {
            "trials": [own, _trial("1/1/2", 0.0135)],
            "probe": probe,
            "parity": (_uneven(_rows("2/1/3", 0.014)), _rows("2/1/3", 0.014, luck="alone")),
            "skipped": {},
        },
        "a shared boot of other counts": {
            "trials": [own, _trial("1/1/2", 0.0135)],
            "probe": probe,
            "parity": (_counted(_rows("2/1/3", 0.014)), _rows("2/1/3", 0.014, luck="alone")),
            "skipped": {},
        },
        "the own one is best": {
            "trials": [own, _trial("1/1/2", 0.016, "own-boot")],
            "probe": probe,
            "skipped": {"3/4/12": "not run: the boot died"},
        },
        "a setting that cannot win": {
            "trials": [own, _trial("3/1/4", 0.060), _trial("1/1/2", 0.008)],
            "probe": probe,
            "skipped": {"3/4/12": "not run: see there"},
        },
        "apart": {"trials": [own, _trial("2/4/8", 0.012, "own-boot", apart=True)], "probe": probe, "skipped": {}},
        "crowded": {
            "trials": [own, _trial("1/1/2", 0.009)],
            "probe": probe,
            "skipped": {},
            "crowded": True,
            "fallback": "the pin was refused",
        },
        "no baseline": {
            "trials": [_trial("2/1/3", 0.014, base=False), _trial("1/1/2", 0.009, base=False)],
            "probe": probe,
            "skipped": {},
        },
        "it does not read its target": {"trials": [own, _trial("1/1/2", 0.009)], "probe": blind, "skipped": {}},
        "an attached server": {
            "trials": [{**_trial("5/1/6", 0.02, "attached"), "own": _rows("5/1/6", 0.02)}],
            "probe": deep,
            "own": "5/1/6",
            "skipped": {"1/1/2": "not run: attached", "3/1/4": "not run: attached", "2/4/8": "not run: attached"},
        },
        "four streams, a gate of its own": {
            "trials": [own, _trial("1/1/2", 0.012)],
            "probe": probe,
            "skipped": {},
            "concurrency": 4,
            "baseline_source": "alternating",
            "gate": {"p_reach": 0.6, "min_headroom": 1.3},
            "dropped": {prompt_id(3): "loops"},
        },
    }
    return "\n".join(block(name, adapter.attempt(partial(_sweep, **case))) for name, case in cases.items())


def _sweep(trials: list[dict[str, Any]], *, own: str = "2/1/3", skipped: dict[str, str], **more: Any) -> Any:
    settings = list(dict.fromkeys([own, *(t["setting"] for t in trials), *skipped]))
    return adapter.sweep(trials, own=own, settings=settings, skipped=skipped, **more)
