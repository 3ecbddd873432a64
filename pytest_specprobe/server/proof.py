"""Prove what runs before measuring it: pure checks on what the server says, its log, and one canary request.

A server that silently fell back to plain decoding, runs ``EAGLE`` where ``EAGLE3`` was asked for, or accepts by
looser rules answers every request correctly; only these checks tell it apart.
"""

from dataclasses import replace
from pathlib import PurePath

from pytest_specprobe.findings import Finding, finding
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.server.http.info import ServerInfo
from pytest_specprobe.server.log.boot_log import faults
from pytest_specprobe.server.process.listeners import Listener
from pytest_specprobe.server.reach import reachable
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.server.variables import forging_variables

ALGORITHM = "EAGLE3"
_ADAPTIVE = "proof.adaptive"


def prove(
    info: ServerInfo,
    *,
    spec: ServerSpec,
    log_text: str | None,
    canary: Generation,
    scrubbed: tuple[str, ...] | None,
    variables: tuple[str, ...] = (),
    sockets: tuple[Listener, ...] | None = None,
) -> tuple[Finding, ...]:
    """Return every proof, passing ones too; for a baseline (no drafter in ``spec``), that nothing speculates.

    :param log_text: the server's log; None for a server whose log nobody can see (``skip``).
    :param scrubbed: names scrubbed from the environment of a server that is owned or vouched for; None for any other,
        where simulated acceptance cannot be seen from outside.
    :param variables: names seen in the environment of the processes of a server that is vouched for.
    :param sockets: what the processes of a server that is owned or vouched for listen on; None for any other.
    """
    vouched = scrubbed is not None
    reach = reachable(info, spec, vouched=vouched, sockets=sockets)
    if spec.drafter is None:
        return (_plain(info, canary), *reach, _log(log_text))
    speculates = info.algorithm is not None or bool(canary.rounds)
    return (
        _algorithm(info),
        *_follows(
            _draft_path(info, spec, owned=vouched),
            _settings(info, spec),
            _threshold(info),
            _canary(canary),
            from_none=not speculates,
        ),
        _pinned(info, spec) if spec.candidates else _adaptive(info),
        *reach,
        _simulated(spec, scrubbed, variables),
        _log(log_text),
    )


def _follows(*findings: Finding, from_none: bool) -> tuple[Finding, ...]:
    """Return what is asked of a server that speculates; of one that does not, nothing can be asked (``skip``)."""
    if not from_none:
        return findings
    return tuple(replace(f, status="skip", seen="nothing: the server does not speculate") for f in findings)


def _algorithm(info: ServerInfo) -> Finding:
    return finding(
        "proof.algorithm",
        passed=info.algorithm == ALGORITHM,
        culprit="launch-flags",
        seen=info.algorithm or "no speculation",
        expected=ALGORITHM,
        why="EAGLE never applies an EAGLE-3 drafter's fc: every answer stays right and nothing is accepted "
        "(accept length exactly 1.00 was reported for a good drafter).",
        fix="start the server with --speculative-algorithm EAGLE3",
    )


def _draft_path(info: ServerInfo, spec: ServerSpec, *, owned: bool) -> Finding:
    seen, wanted = PurePath(info.draft_model_path or ""), PurePath(spec.drafter or "")
    # Someone else's server may hold the same drafter at another place, so there only the name can be compared.
    same = seen == wanted if owned else seen.name == wanted.name
    return finding(
        "proof.draft-path",
        passed=same and bool(info.draft_model_path),
        severity="error" if owned or not info.draft_model_path else "warning",
        culprit="launch-flags",
        seen=info.draft_model_path or "no drafter",
        expected=str(wanted),
        why="Without a draft path SGLang loads the target itself as its drafter; with another one, another drafter "
        "is judged.",
        fix="start the server with --speculative-draft-model-path set to this drafter",
    )


def _settings(info: ServerInfo, spec: ServerSpec) -> Finding:
    wanted = spec.speculation
    seen = (info.num_steps, info.eagle_topk, info.num_draft_tokens)
    expected = (wanted.num_steps, wanted.eagle_topk, wanted.num_draft_tokens) if wanted else (None, None, None)
    return finding(
        "proof.settings",
        passed=seen == expected,
        culprit="launch-flags",
        seen="/".join(map(str, seen)),
        expected="/".join(map(str, expected)) + " (steps/topk/draft tokens)",
        why="SGLang adjusts settings that do not fit together, with no more than a log line; the accept length of "
        "another depth is another number.",
        fix="correct `speculation` in the drafter's profile, or restart the server with these settings",
    )


def _threshold(info: ServerInfo) -> Finding:
    seen = (info.accept_threshold_single, info.accept_threshold_acc)
    return finding(
        "proof.lossy-threshold",
        passed=seen == (1.0, 1.0),
        culprit="launch-flags",
        seen=f"single {seen[0]}, acc {seen[1]}",
        expected="both exactly 1.0",
        why="Below 1.0 the target accepts tokens that it would not have chosen: the accept length rises and the text "
        "changes.",
        fix="leave --speculative-accept-threshold-single and -acc at 1.0",
    )


def _canary(canary: Generation) -> Finding:
    rounds = canary.rounds or 0
    return finding(
        "proof.not-speculating",
        passed=rounds > 0,
        culprit="engine",
        seen=f"{rounds} rounds for {canary.completion_tokens} tokens"
        if canary.rounds is not None
        else f"no speculation fields in an answer of {canary.completion_tokens} tokens",
        expected="at least one draft + verify round (spec_verify_ct > 0)",
        why="The server answers by plain decoding: whatever is measured, it is not this drafter.",
        fix="look in the server's log for why speculation was switched off",
    )


def _adaptive(info: ServerInfo) -> Finding:
    adaptive = info.effective().get("speculative_adaptive") is True
    return finding(
        _ADAPTIVE,
        passed=not adaptive,
        severity="warning",
        culprit="launch-flags",
        seen="on" if adaptive else "off",
        expected="off, unless the step count is pinned",
        why="SGLang then changes the number of draft steps while it is measured, so accept lengths of several depths "
        "are mixed.",
        fix="start the server without --speculative-adaptive",
    )


def _pinned(info: ServerInfo, spec: ServerSpec) -> Finding:
    adaptive = info.effective().get("speculative_adaptive") is True
    return finding(
        _ADAPTIVE,
        passed=adaptive,
        culprit="engine",
        seen="on" if adaptive else "off",
        expected=f"on, with the step counts {', '.join(map(str, spec.candidates))} prebuilt",
        why="Where SGLang's adaptive runtime cannot run, it says so in a log line and boots with one step count.",
        fix="measure each setting on a server of its own; the log says what 'speculative_adaptive disabled' is for",
    )


def _simulated(spec: ServerSpec, scrubbed: tuple[str, ...] | None, variables: tuple[str, ...]) -> Finding:
    forged = forging_variables((*dict(spec.env), *variables))
    removed = forging_variables(scrubbed or ())
    if scrubbed is None:
        seen = "unproved: another's environment cannot be seen from outside"
    elif forged:
        seen = ", ".join(forged)
    else:
        seen = f"none (scrubbed: {', '.join(removed)})" if removed else "none"
    return finding(
        "proof.simulated-acceptance",
        passed=not forged,
        skipped=scrubbed is None,
        culprit="harness",
        seen=seen,
        expected="no variable that simulates acceptance or lifts SGLang's checks",
        why="With SGLANG_SIMULATE_ACC_LEN set, any drafter shows the accept length that was asked for.",
        fix="unset these variables where the server is started",
    )


def _log(log_text: str | None) -> Finding:
    seen = faults(log_text) if log_text is not None else ()
    return finding(
        "proof.log-errors",
        passed=not seen,
        skipped=log_text is None,
        culprit="engine",
        seen="; ".join(seen[:3]) if seen else "none" if log_text is not None else "not visible (attached server)",
        expected="no traceback, no exception of a process, no ERROR record",
        why="A part of the server failed and was worked around or lost; what it measures from then on is not what "
        "was asked for.",
        fix="read the log around these lines",
    )


def _plain(info: ServerInfo, canary: Generation) -> Finding:
    return finding(
        "proof.baseline-speculates",
        passed=info.algorithm is None and not canary.rounds,
        culprit="launch-flags",
        seen=info.algorithm or (f"{canary.rounds} rounds" if canary.rounds else "plain decoding"),
        expected="plain decoding",
        why="A baseline that speculates itself makes every drafter look useless.",
        fix="start the baseline without --speculative-* flags",
    )
