"""Where a profile's model and drafter directories are; nothing is ever downloaded implicitly."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

from pytest_specprobe.errors import Culprit
from pytest_specprobe.profiles import FIXTURES_SCHEME

Role = Literal["drafter", "target"]
_REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Missing:
    """A directory that is not there: what was looked for, where, and what to type."""

    role: Role
    source: str
    looked: tuple[str, ...]
    fix: str

    @property
    def culprit(self) -> Culprit:
        """Whose file it is."""
        return "drafter-file" if self.role == "drafter" else "target"

    def __str__(self) -> str:
        return f"{self.role} {self.source!r} not found; looked at {', '.join(self.looked)}"


def locate(source: str, *, role: Role, root: Path) -> Path | Missing:
    """Return the directory of a profile's ``source`` or ``model``.

    ``fixtures://NAME`` is a model of this repository, which an installed wheel does not have. Anything else is a
    directory (relative to ``root``), or else a hub id that must already be in the local hub cache.
    """
    if source.startswith(FIXTURES_SCHEME):
        return _fixture(source, role)
    path = (root / Path(source).expanduser()).absolute()
    if path.is_dir():
        return path
    looked = [str(path)]
    if _is_hub_id(source):
        looked.append(f"the hub cache {constants.HF_HUB_CACHE}")
        try:
            return Path(snapshot_download(source, local_files_only=True))
        except (LocalEntryNotFoundError, HFValidationError, OSError):
            fix = f"hf download {source}"
            if role == "drafter":
                fix += " --include '*.json' '*.safetensors'"
            return Missing(role, source, tuple(looked), f"{fix}   (or name a local directory in the profile)")
    return Missing(role, source, tuple(looked), f"correct the path of the {role} in the profile")


def _fixture(source: str, role: Role) -> Path | Missing:
    path = _REPOSITORY / "fixtures" / source.removeprefix(FIXTURES_SCHEME)
    if path.is_dir():
        return path
    return Missing(
        role,
        source,
        (str(path),),
        "clone needed: the mini family travels with the repository, not with the wheel; "
        "clone pytest-specprobe and run `pip install -e '.[sglang]'` there",
    )


def _is_hub_id(source: str) -> bool:
    owner, slash, name = source.partition("/")
    return bool(slash and owner and name) and "/" not in name and not source.startswith((".", "~", "/"))
