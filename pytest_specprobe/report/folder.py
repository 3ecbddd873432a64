"""Where a run writes: a folder in a working directory of which a pull request may have made every file.

Git keeps symbolic links. One in the place of the folder, or of a file that is appended to, would carry what is
written to any file of the user. So no link is followed; a file that is written as a whole (``report.json``)
replaces it.
"""

from collections.abc import Iterator
from pathlib import Path

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.report.store import baselines, history

LOGS = "logs"
_INSIDE = (LOGS, *(f"{name}{more}" for name in (history.NAME, baselines.NAME) for more in ("", ".lock")))


def require_no_links(folder: Path, *, roots: tuple[Path, ...]) -> None:
    """Refuse a report folder with a link on the way to what is written there, naming every link.

    :param folder: absolute.
    :param roots: working directories, which others may have filled; a link above them is the user's own.
    :raises ProfileError: if there is one.
    """
    links = [path for path in (*_below(folder, roots), *(folder / name for name in _INSIDE)) if path.is_symlink()]
    if links:
        raise ProfileError(
            tuple(f"{path} is a symbolic link to {path.readlink()}, which is not followed" for path in links),
            fix="remove the link, if need be from the repository too; to write to another place, name it with "
            "--specprobe-report=DIR",
        )


def _below(folder: Path, roots: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the folder and those above it that lie in a working directory."""
    for path in (folder, *folder.parents):
        if any(root in path.parents for root in roots):
            yield path
