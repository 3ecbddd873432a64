"""The hooks of a run with a named drafter: collect, parametrise, report, and own the exit code."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureManager
from _pytest.config import create_terminal_writer
from _pytest.terminal import TerminalReporter

from pytest_specprobe import options
from pytest_specprobe.errors import Inconclusive, ProbeImpossible, ProfileError, SpecprobeError
from pytest_specprobe.foreign import printable
from pytest_specprobe.probe.printed_plan import plan
from pytest_specprobe.probe.report_entry import properties
from pytest_specprobe.probe.session import ProbeSession
from pytest_specprobe.profiles import Profile
from pytest_specprobe.report.exit_code import Failure, Outcome, exit_code
from pytest_specprobe.report.render.terminal import summary
from pytest_specprobe.settings import Settings

SUITE = Path(__file__).with_name("suite")
_ORDER = ("test_vocab_mapping", "test_wiring", "test_boot", "test_acceptance", "test_throughput", "test_history")
_BOOTS = frozenset({"specprobe_server", "specprobe_baseline", "specprobe_client", "specprobe_acceptance",
                    "specprobe_throughput", "specprobe_history"})  # fmt: skip
_SHORTHAND = "specprobe/"


class ActivePlugin:
    """One pytest session that probes drafters; owns the probe session and closes it, whatever happens."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._seen: dict[str, str] = {}
        self._outcome = Outcome()
        self._left: Counter[str | None] = Counter()
        self._ran = False
        _refuse_workers(config, settings)
        if not settings.static:
            _require_benchmark(config)
        _select_suite(config)
        with _usage_errors():
            self.session = ProbeSession(settings, say=self._say, server_args=_extra_args(config))

    def _say(self, line: str) -> None:
        """Show one line now, past pytest's capture."""
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        capture: CaptureManager | None = self._config.pluginmanager.get_plugin("capturemanager")
        if reporter is None or self._config.get_verbosity() < 0:
            return
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(f"specprobe  {printable(line)}")

    def pytest_report_header(self) -> list[str]:
        """Name the drafters, the device and whether remote code is allowed: cheap facts only."""
        alone = self._config.stash.get(options.WORKERS_LEFT_OUT, False)
        note = ["specprobe: no pytest-xdist workers, a server is measured from one process"] if alone else []
        return [*map(printable, self.session.header()), *note]

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        """Give shipped tests ids that are the same on every machine, since stored benchmarks pair by id."""
        if module_path.parent != SUITE:
            return None
        module: pytest.Module = pytest.Module.from_parent(
            parent, path=module_path, nodeid=_SHORTHAND + module_path.name
        )
        return module

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Put the drafter into the id of every test that uses a specprobe fixture.

        A test that asks for ``specprobe_streams`` runs at every concurrency, with workload and concurrency in its id.
        """
        names = self._settings.drafters
        if "specprobe_streams" in metafunc.fixturenames:
            runs = [(name, streams) for name in names for streams in self._settings.concurrency]
            metafunc.parametrize(
                ("specprobe_profile", "specprobe_streams"),
                runs,
                indirect=["specprobe_profile"],
                scope="session",
                ids=[f"{name}-{self.session.workload_name(name)}-{streams}" for name, streams in runs],
            )
        elif "specprobe_profile" in metafunc.fixturenames:
            metafunc.parametrize("specprobe_profile", names, indirect=True, scope="session", ids=names)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Run drafter by drafter, cheap checks before boots; with ``--specprobe-static``, leave out whatever boots.

        Last of all, since a drafter's server is stopped when the next one's tests begin: no other order works.
        """
        items.sort(key=self._place)
        for item in items:
            if item.path.parent == SUITE and "benchmark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.benchmark(group="tok/s", timer=self.session.clock))
        if self._settings.static:
            booting = [item for item in items if _BOOTS.intersection(getattr(item, "fixturenames", ()))]
            if booting:
                config.hook.pytest_deselected(items=booting)
                items[:] = [item for item in items if item not in booting]

    def _place(self, item: pytest.Item) -> tuple[int, int]:
        """Order by drafter, then by shipped module; a user's own tests keep their place after those."""
        name, names = _drafter_of(item), self._settings.drafters
        shipped = item.path.parent == SUITE and item.path.stem in _ORDER
        return (
            len(names) if name is None else names.index(name),
            _ORDER.index(item.path.stem) if shipped else len(_ORDER),
        )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember which drafters are to get a verdict."""
        for item in session.items:
            if "specprobe_acceptance" in getattr(item, "fixturenames", ()):
                self.session.wanted.add(_drafter_of(item) or "")
        self._outcome.wanted = self.session.wanted
        self._left = Counter(_drafter_of(item) for item in session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count down: a drafter's servers end with the last of its tests."""
        self._left[_drafter_of(item)] -= 1
        self._ran = not self._config.option.setupplan
        return (yield)

    def awaits(self, drafter: str) -> bool:
        """Tell whether a test of this drafter is still to come."""
        return self._left[drafter] > 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show our own errors as text, once each; add the server's last log lines; note the kind of failure."""
        report = yield
        name = _drafter_of(item)
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, SpecprobeError):
            report.longrepr = self._shorten(str(error), report.nodeid)
        if report.failed and name is not None:
            self._outcome.failures.add(_kind(error))
            tail = self.session.run(name).log_tail()
            if tail and report.when == "call" and not isinstance(error, SpecprobeError):
                report.sections.append((f"SGLang log of {name}", printable(tail)))
        elif report.failed:
            self._outcome.failures.add("failed")
        if name is not None and report.when == "call":
            # the item's, which pytest copies into the report of the teardown: that one is what JUnit reads
            item.user_properties.extend(properties(self.session.run(name)))
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a module that cannot be imported as a failure of this run."""
        if report.failed:
            self._outcome.failures.add("failed")

    def _shorten(self, text: str, nodeid: str) -> str:
        first = self._seen.setdefault(text, nodeid)
        return text if first == nodeid else f"same cause as {first}: {text.splitlines()[0]}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Decide, write the report, stop every server, and set the exit code.

        Where no test ran there is nothing to decide: the report of the last run stays, and so does pytest's code.
        """
        if not self._ran:
            self.session.close()
            return
        entries = self.session.finish()
        if self.session.problems:
            self._outcome.failures.add("impossible")
        for name, entry in entries.items():
            self._config.hook.pytest_specprobe_decided(profile=self.session.profile(name), entry=entry.document())
        session.exitstatus = exit_code(int(exitstatus), self._outcome, entries, static=self._settings.static)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the verdict first, then why, then the numbers, then what to do."""
        if not self._ran:
            return
        session = self.session
        if session.report is not None:
            for line in summary(session.report, path=session.report_path, colour=terminalreporter.hasmarkup):
                terminalreporter.write_line(line)
        for problem in self.session.problems:
            terminalreporter.write_line(str(problem))

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add what makes two stored speeds comparable and pytest-benchmark does not know: GPUs, driver, SGLang."""
        machine_info.update(self.session.machine_info())

    def pytest_unconfigure(self) -> None:
        """Stop whatever still runs: also after an internal error."""
        self.session.close()


def print_plan(config: pytest.Config) -> int:
    """Print what would run for each named drafter; nothing is booted, collected or written."""
    names = options.drafters(config)
    if not names:
        raise pytest.UsageError("--specprobe-plan needs --specprobe-drafter=NAME")
    writer = create_terminal_writer(config)
    with _usage_errors():
        for line in plan(options.read_settings(config), server_args=_extra_args(config)):
            writer.line(printable(line))
    return 0


def _select_suite(config: pytest.Config) -> None:
    """Collect the shipped suite when no test path is given; read ``specprobe/...`` as a path into it."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(SUITE)]
        return
    for at, arg in enumerate(config.args):
        if arg.startswith(_SHORTHAND) and not Path(arg.partition("::")[0]).exists():
            config.args[at] = str(SUITE / arg.removeprefix(_SHORTHAND))


def _extra_args(config: pytest.Config) -> Callable[[Profile], tuple[str, ...]]:
    """Return what asks every conftest.py for more SGLang flags, in the order of the answers."""
    hook = config.hook.pytest_specprobe_server_args
    return lambda profile: tuple(arg for args in hook(profile=profile) for arg in args)


def _refuse_workers(config: pytest.Config, settings: Settings) -> None:
    """Several workers would each boot a server, and pytest-benchmark switches itself off under them."""
    if options.wants_workers(config) and settings.server is None:
        raise pytest.UsageError(
            "--specprobe-drafter boots one server per session, so it does not run under pytest-xdist: drop -n "
            "(or --dist and --tx), "
            "or attach to a running server with --specprobe-server=URL"
        )


def _require_benchmark(config: pytest.Config) -> None:
    """Refuse what would leave tok/s, or a gate on it, out of pytest-benchmark without a word."""
    if not config.pluginmanager.has_plugin("benchmark"):
        raise pytest.UsageError(
            "tok/s goes to pytest-benchmark, which is missing or switched off: pip install pytest-benchmark, "
            "and drop -p no:benchmark"
        )
    if any(getattr(plugin, "is_codspeed_enabled", False) for plugin in config.pluginmanager.get_plugins()):
        raise pytest.UsageError(
            "pytest-codspeed takes the place of pytest-benchmark and would time the test instead of the server: "
            "probe without --codspeed and CODSPEED_ENV"
        )
    option = config.option
    if option.benchmark_compare_fail and (option.benchmark_skip or option.benchmark_disable):
        raise pytest.UsageError(
            "--benchmark-compare-fail compares nothing with --benchmark-disable or --benchmark-skip: drop one of them"
        )


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ProfileError as error:
        raise pytest.UsageError(str(error)) from None


def _drafter_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("specprobe_profile")


def _kind(error: BaseException | None) -> Failure:
    if isinstance(error, ProbeImpossible):
        return "impossible"
    return "inconclusive" if isinstance(error, Inconclusive) else "failed"
