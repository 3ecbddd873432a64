"""Break-even arithmetic, against the founding probe's numbers and its own equations."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.cli import main
from pytest_specprobe.decide.breakeven import (
    break_even,
    chain_length,
    measured_break_even,
    reading,
    required_acceptance,
)
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.report.build import break_even_of

AQ = ["breakeven", "--baseline", "82", "--tok-s", "52", "--accept-length", "1.5", "--steps", "2"]
SCRATCH = ["breakeven", "--baseline", "82", "--tok-s", "60", "--accept-length", "2.0", "--steps", "2"]


@pytest.mark.parametrize(
    ("tok_s", "length", "expected"),
    [(52.0, 1.5, (2.37, 0.77, 1.03, 1.27)), (60.0, 2.0, (2.73, 0.91, 0.89, 1.10))],
)
def test_the_founding_probe(tok_s: float, length: float, expected: tuple[float, float, float, float]) -> None:
    point = break_even(round_s=length / tok_s, baseline_tok_per_s=82.0, depth=2)
    assert point.required_acceptance is not None
    got = (point.accept_length, point.required_acceptance, point.headroom, point.ceiling_speedup)
    assert tuple(round(x, 2) for x in got) == expected
    assert point.max_accept_length == 3
    assert reading(point, length) == "verify-bound"


def test_what_training_reached_later() -> None:
    """38 % per position is the zero-shot accept length again; 74.7 % would still have been below break-even."""
    assert round(chain_length(0.38, depth=2), 2) == 1.52
    assert round(chain_length(0.747, depth=2), 2) == 2.31
    assert chain_length(0.747, depth=2) < break_even(round_s=1.5 / 52, baseline_tok_per_s=82, depth=2).accept_length


def test_the_ends_of_the_scale() -> None:
    assert required_acceptance(1.0, depth=2) == 0
    assert required_acceptance(0.4, depth=2) == 0
    assert required_acceptance(3.0, depth=2) == pytest.approx(1)
    assert required_acceptance(3.01, depth=2) is None


@given(st.floats(1.0001, 9.0), st.integers(1, 8))
def test_p_star_solves_its_equation(length: float, depth: int) -> None:
    p = required_acceptance(length, depth=depth)
    if length > depth + 1:
        assert p is None
    else:
        assert p is not None
        assert chain_length(p, depth=depth) == pytest.approx(length)


@given(st.floats(1e-4, 10), st.floats(0.1, 1e4), st.floats(1.001, 3), st.integers(1, 8))
def test_break_even_grows_with_the_baseline_and_the_round(s: float, base: float, factor: float, depth: int) -> None:
    point = break_even(round_s=s, baseline_tok_per_s=base, depth=depth)
    for other in (
        break_even(round_s=s, baseline_tok_per_s=base * factor, depth=depth),
        break_even(round_s=s * factor, baseline_tok_per_s=base, depth=depth),
    ):
        assert other.accept_length > point.accept_length
        assert other.headroom < point.headroom
        assert other.ceiling_speedup < point.ceiling_speedup
    json.dumps(break_even_of(point).document(), allow_nan=False)


def test_the_interval_is_carried_through() -> None:
    point = measured_break_even(Estimate(2.0, 1.9, 2.2, 24), round_s=0.03, depth=2)
    reach = 1 + 0.8 + 0.64
    assert point.accept_length_interval == Estimate(2.0, 1.9, 2.2, 24)
    assert point.headroom_interval is not None
    assert point.headroom_interval.value == point.headroom == pytest.approx(reach / 2.0)
    assert point.headroom_interval.low == pytest.approx(reach / 2.2)
    assert point.headroom_interval.high == pytest.approx(reach / 1.9)
    assert point.required_acceptance == required_acceptance(2.0, depth=2)
    assert break_even_of(point).document()["intervals"] == {
        "accept_length": asdict(point.accept_length_interval),
        "headroom": asdict(point.headroom_interval),
    }


@pytest.mark.parametrize(
    "bad", [{"round_s": 0.0}, {"round_s": float("nan")}, {"baseline_tok_per_s": -1.0}, {"depth": 0}, {"p_reach": 1.0}]
)
def test_nonsense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        break_even(**{"round_s": 0.03, "baseline_tok_per_s": 82.0, "depth": 2, **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (AQ, ["28.8 ms", "2.37 of 3.0", "0.77", "1.03", "1.27", "verify-bound"]),
        (SCRATCH, ["33.3 ms", "2.73 of 3.0", "0.91", "0.89", "1.10", "verify-bound"]),
        ([*AQ, "--min-headroom", "1.02"], ["finetune"]),
        ([*AQ[:-2], "--steps", "4"], ["2.37 of 5.0", "finetune"]),
        ([*AQ[:-2], "--steps", "4", "--draft-tokens", "3"], ["2.37 of 3.0"]),
        (["breakeven", "--baseline", "40", *AQ[3:]], ["profitable"]),
        (["breakeven", "--baseline", "20", *AQ[3:]], ["doubt"]),
    ],
)
def test_the_command(capsys: pytest.CaptureFixture[str], argv: list[str], words: list[str]) -> None:
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert [word for word in words if word not in out] == []


def test_the_commands_json_is_the_reports_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*AQ, "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got == break_even_of(break_even(round_s=1.5 / 52, baseline_tok_per_s=82, depth=2)).document()
    assert got["intervals"] is None
    assert {"accept_length", "max_accept_length", "required_acceptance", "headroom", "ceiling_speedup"} <= got.keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--accept-length", "3.2"], "outside 1 .. 3"),
        (["--accept-length", "0.5"], "outside 1 .. 3"),
        (["--p-reach", "1.5"], "below 1"),
        (["--draft-tokens", "1"], "at least 2"),
    ],
)
def test_unusable_numbers(capsys: pytest.CaptureFixture[str], change: list[str], words: str) -> None:
    assert main([*AQ, *change]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("change", [["--baseline", "0"], ["--tok-s", "nan"], ["--steps", "0"], ["--steps", "x"]])
def test_unusable_arguments(capsys: pytest.CaptureFixture[str], change: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*AQ, *change])
    assert caught.value.code == 2
    assert change[0] in capsys.readouterr().err
