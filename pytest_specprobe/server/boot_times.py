"""How long a boot took the last time on this machine, so that someone who waits knows how long it may take."""

import contextlib
import hashlib
import json
from dataclasses import replace
from pathlib import Path

from pytest_specprobe import private
from pytest_specprobe.reading import Bounds, parse_json
from pytest_specprobe.server.process.ownership import records_dir
from pytest_specprobe.server.spec import ServerSpec

_KEPT = 200
_BOUNDS = Bounds(size=1 << 20, depth=4)


def usual_s(spec: ServerSpec) -> float | None:
    """Return the seconds that the last boot of the same target, drafter and flags took; None if none is known."""
    value = _read().get(_key(spec))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def remember(spec: ServerSpec, seconds: float) -> None:
    """Keep a boot's seconds. Best effort: two runs at once may lose one of them."""
    times = _read()
    times.pop(_key(spec), None)
    times[_key(spec)] = round(seconds, 1)
    with contextlib.suppress(OSError):
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        private.write(path, json.dumps(dict(list(times.items())[-_KEPT:])).encode())


def _key(spec: ServerSpec) -> str:
    # A staged directory's name changes with every drafter version; the boot takes as long for the next one.
    plain = replace(spec, drafter=Path("drafter") if spec.drafter else None, python="", env=())
    return hashlib.sha256(repr(plain).encode()).hexdigest()[:24]


def _path() -> Path:
    return records_dir().parent / "boot-times.json"


def _read() -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        value = parse_json(private.read(_path(), limit=_BOUNDS.size), _BOUNDS)
        if isinstance(value, dict):
            return value
    return {}
