"""``specprobe inspect``: what a drafter's files alone can tell. No GPU, no torch, no SGLang."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.foreign import json_text, printable

if TYPE_CHECKING:
    from pytest_specprobe.findings import Finding

_LABELS = {"error": "FAULT", "warning": "warn", "info": "note"}


def add(verbs: Verbs) -> None:
    """Add the verb."""
    inspect = verbs.add_parser(
        "inspect",
        help="check a drafter's files, alone or against a target",
        description="Check a drafter's config, tensors and vocabulary mapping, alone or against a target. "
        "Exit 0 without errors, 1 with, 2 for unusable arguments.",
    )
    inspect.add_argument("drafter", type=Path, metavar="DRAFTER", help="directory of the drafter")
    inspect.add_argument("--target", metavar="TARGET", help="directory, config.json, or a profile's target name")
    inspect.add_argument("--parent", type=Path, metavar="DIR", help="the drafter this one was fine-tuned from")
    inspect.add_argument(
        "--context-length", type=_positive, metavar="N", help="tokens the server will serve (the target's)"
    )
    inspect.add_argument(
        "--algorithm", default="EAGLE3", metavar="NAME", help="--speculative-algorithm of the launch"
    )
    inspect.add_argument("--sglang", type=_version, metavar="VERSION", help="SGLang that will serve the drafter")
    inspect.add_argument("--all", action="store_true", help="list passing and skipped checks too")
    inspect.add_argument("--json", action="store_true", help="print JSON: what failed (schema inspect.schema.json)")
    inspect.set_defaults(run=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.checkpoint.inspect import inspect
    from pytest_specprobe.findings import failed

    target = _target(arguments.target) if arguments.target else None
    findings = inspect(
        arguments.drafter,
        target=target,
        serving_context=arguments.context_length,
        algorithm=arguments.algorithm,
        engine_version=arguments.sglang,
        parent=arguments.parent,
    )
    if arguments.json:
        document = {
            "schema": 1,
            "drafter": str(arguments.drafter),
            "target": str(target) if target else None,
            "findings": [asdict(finding) for finding in findings if finding.status == "fail"],
        }
        print(json_text(document, indent=2))
    else:
        print(printable("\n".join(_report(findings, every=arguments.all))))
    return int(bool(failed(findings)))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _version(text: str) -> str:
    from pytest_specprobe.checkpoint.engine.versions import parse_version

    if parse_version(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no version: write it as 0.5.23")
    return text


def _target(text: str) -> Path:
    """Return a target's path: the argument itself if it exists, else the model of the profile of that name."""
    path = Path(text)
    if path.exists():
        return path
    from pytest_specprobe.cli.targets import target_path

    return target_path(text)


def _report(findings: "Iterable[Finding]", *, every: bool) -> list[str]:
    every_finding = list(findings)
    wrong = [f for severity in _LABELS for f in every_finding if f.status == "fail" and f.severity == severity]
    lines = []
    for finding in wrong:
        lines += [
            f"{_LABELS[finding.severity]:<5}  {finding.id}  [{finding.culprit}]",
            f"       saw       {finding.seen}",
            f"       expected  {finding.expected}",
            f"       why       {finding.why}",
            f"       next      {finding.fix}",
        ]
    if every:
        lines += [f"{f.status:<5}  {f.id}: {f.seen}" for f in every_finding if f.status != "fail"]
    return [*lines, _summary(every_finding)]


def _summary(findings: "list[Finding]") -> str:
    counts = {status: sum(f.status == status for f in findings) for status in ("pass", "skip")}
    severities = [f.severity for f in findings if f.status == "fail"]
    counted = [f"{severities.count('error')} errors", f"{severities.count('warning')} warnings"]
    counted += [f"{severities.count('info')} notes", f"{counts['pass']} passed", f"{counts['skip']} not applicable"]
    return f"{len(findings)} checks: {', '.join(counted)}"
