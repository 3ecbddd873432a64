"""For runs of this repository alone: the tiers of its tests, and the profiles of hypothesis.

pytest loads this file in every other project too, beside the shipped suite of an editable install: nothing here acts
unless this repository is the run's root.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
TIERS = {
    "unit": "no server and no child process: what to run while working",
    "plugin": "pytest in a process of its own, supervisors and stand-ins for SGLang",
    "engine": "the real SGLang's operations and servers",
    "job": "the whole job on the real SGLang",
}
_FOLDERS = {"plugin": "plugin", "server": "plugin", "engine": "engine", "job": "job"}
# Modules of other folders that start children; a test holds that no other one does.
_FILES = {
    "engine": ("server/test_real_server.py", "checkpoint/engine/test_engine_agreement.py"),
    "plugin": (
        "cli/test_checkpoint_verbs.py",
        "cli/test_odd_words.py",
        "fixtures_family/test_build.py",
        "fixtures_family/test_gpu_host.py",
        "measure/checks/test_busy_machine.py",
        "probe/test_logs.py",
        "plugin/test_bare_install.py",
        "report/render/test_browser.py",
        "docs/test_docs.py",
        "report/store/test_history.py",
        "report/render/test_html.py",
        "staging/test_cache.py",
        "staging/test_staging.py",
    ),
}
_PROFILE = "HYPOTHESIS_PROFILE"


def tier(item: pytest.Item) -> str | None:
    """Return the one tier of a test: by its folder, and by what it needs; None outside of ``tests/``."""
    if not item.path.is_relative_to(ROOT / "tests"):
        return None
    if "pytester" in getattr(item, "fixturenames", ()):
        return "plugin"
    return tier_of(item.path.relative_to(ROOT / "tests"))


def tier_of(path: Path) -> str:
    """Return the tier of a test module, named from ``tests/``, as its folder or its own entry says."""
    listed = (name for name, files in _FILES.items() if path.as_posix() in files)
    return next(listed, _FOLDERS.get(path.parts[0], "unit"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the tiers, and choose hypothesis's profile: ``dev``, or the one that ``HYPOTHESIS_PROFILE`` names."""
    if config.rootpath != ROOT:
        return
    for name, what in TIERS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    try:
        from hypothesis import settings  # noqa: PLC0415 - not to be imported in another project's run
    except ModuleNotFoundError:
        # a probe in this repository, as README.md begins: what its tests need is not installed
        return
    settings.register_profile("dev", deadline=None)
    settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
    settings.load_profile(os.environ.get(_PROFILE, "dev"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test with its tier, so that ``-m unit`` selects."""
    if config.rootpath != ROOT:
        return
    for item in items:
        name = tier(item)
        if name is not None:
            item.add_marker(name)
