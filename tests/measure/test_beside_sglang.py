"""The comparison with SGLang's own client reads logs and renders its table right; a proof runs it for real."""

import pytest

from benchmarks.beside_sglang import decode_lines, log_rate, rate, table
from tests.support.beside_sglang import LOG, figures, turn


def test_a_decode_line_whose_interval_holds_a_prefill_is_left_out() -> None:
    assert list(decode_lines(LOG)) == [(1.5, 120.0), (2.0, 130.0), (1.2, 100.0)]


def test_the_rate_of_a_log_weighs_lines_by_their_time() -> None:
    """10 rounds of 1.0 tokens at 50 tok/s take 0.2 s, 10 rounds of 2.0 at 100 as long: 30 tokens in 0.4 s."""
    assert log_rate([turn(log_lines=((1.0, 50.0), (2.0, 100.0)))]) == pytest.approx(75.0)
    assert log_rate([turn()]) is None


def test_rates_are_ratios_of_sums() -> None:
    assert rate([turn(tokens=10, decode_s=1.0), turn(tokens=10, decode_s=3.0)]) == pytest.approx(5.0)


def test_the_table_holds_each_figure_beside_theirs() -> None:
    shown = "\n".join(table(figures(ours=[100.0, 102.0], theirs=[100.0, 100.0])))
    assert "| specprobe | 101.0 | +1.0 % | 1.50 |" in shown
    assert "| bench_serving | 100.0 | +0.0 % | 1.48 |" in shown
    assert "turn by turn: 1.000, 1.020" in shown
    assert "2 of 2 of their texts" in shown
    assert "Client overhead" not in shown, "no server time was given"
