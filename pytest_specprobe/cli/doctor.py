"""``specprobe doctor``: can this machine run a probe, and what must be installed?"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.foreign import json_text, printable

if TYPE_CHECKING:
    from pytest_specprobe.findings import Finding

_MARKS = {"error": "MISSING", "warning": "limited", "info": "note"}


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "doctor",
        help="can this machine run a probe, and what is missing?",
        description="Look at SGLang, torch, GPUs, memory, disk and ports. Nothing is started, written or fetched. "
        "Exit 0 if a server could be booted here, 1 if not, 2 for unusable arguments.",
    )
    verb.add_argument(
        "--python", type=Path, metavar="PATH", help="interpreter that holds SGLang (default: the one of this command)"
    )
    verb.add_argument("--json", action="store_true", help="print JSON: every check, and which devices could serve")
    verb.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.probe import doctor
    from pytest_specprobe.server.gpu.holders import gpu_holders
    from pytest_specprobe.server.gpu.nvidia_smi import gpus
    from pytest_specprobe.staging.cache import staged_cache

    python = None if arguments.python is None else arguments.python.expanduser().absolute()
    machine = doctor.look(python=python, cache=staged_cache(), gpus=gpus(), holders=gpu_holders())
    findings, runs = doctor.examine(machine), doctor.runs(machine)
    if arguments.json:
        document = {"schema": 1, "runs": dict(runs), "findings": [asdict(finding) for finding in findings]}
        print(json_text(document, indent=2))
    else:
        print(printable("\n".join(_page(findings, cpu=runs["cpu"], cuda=runs["cuda"]))))
    return int(not any(runs.values()))


def _page(findings: "Sequence[Finding]", *, cpu: bool, cuda: bool) -> Iterator[str]:
    for finding in findings:
        name = finding.id.partition(".")[2]
        mark = {"pass": "ok", "skip": "-", "fail": _MARKS[finding.severity]}[finding.status]
        yield f"{mark:<8} {name:<11} {finding.seen}"
        if finding.status == "fail":
            yield f"{'':<21}wanted: {finding.expected}. {finding.why}"
            yield f"{'':<21}next: {finding.fix}"
    yield ""
    if cuda:
        yield "this machine can serve on its GPUs: pytest --specprobe-drafter=NAME"
    if cpu:
        yield "this machine can serve small targets on its CPU: pytest --specprobe-drafter=aq_k2_mini"
    if not cpu and not cuda:
        yield "no server can be booted here; without one: specprobe inspect, --specprobe-static, --specprobe-server"
