"""The golden files by name, and what makes each; one file per noun, so that a change of one noun changes one file."""

from collections.abc import Callable, Mapping

from tests.characterization import decisions, estimates, findings, past, probes, renderings, sweeps

NOUNS: Mapping[str, Callable[[], str]] = {
    "estimates-records": estimates.estimates_of_records,
    "acceptance": estimates.acceptance_of_simulated,
    "throughput": estimates.throughput_of_simulated,
    "curve": estimates.curves,
    "sampled": estimates.sampled_texts,
    "ranking": estimates.rankings,
    "break-even": estimates.break_evens,
    "predicted": estimates.brackets,
    "loops": estimates.loops,
    "findings": findings.findings,
    "verdicts": decisions.verdicts,
    "gate": decisions.gates,
    "decisions": decisions.grid,
    "decisions-records": decisions.of_records,
    "exit": decisions.exits,
    "sweep": sweeps.sweeps,
    "keys": past.keys,
    "history": past.history_lines,
    "history-records": past.kept_histories,
    "regression": past.regressions,
    "stored-baselines": past.stored_baselines,
    "terminal": renderings.terminal,
    "markdown": renderings.markdown,
    "html": renderings.html,
    "probes": probes.told,
    "probes-whole": probes.whole,
    "probes-properties": probes.properties,
    "probes-calls": probes.calls,
    "probes-terminal": probes.terminal,
    "probes-renderings": probes.renderings,
    "probes-history": probes.history,
    "simulated": probes.simulated,
}
