"""Tables that a proof makes for the docs: written where ``SPECPROBE_PROOF_TABLES`` names a directory."""

import os
from collections.abc import Iterable
from pathlib import Path


def keep(name: str, lines: Iterable[str]) -> None:
    """Write one table as ``NAME.md``, if anybody asked for it."""
    folder = os.environ.get("SPECPROBE_PROOF_TABLES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
