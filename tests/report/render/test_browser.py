"""The page in a real browser: headless Chromium, both themes, a wide and a narrow window."""

import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.html import page
from tests.support.simulated_reports import World, entry, report

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
# page, first series, second series, as the template's style says
THEMES = {
    "light": ("1", ((255, 255, 255), (11, 92, 173), (176, 74, 0))),
    "dark": ("0", ((15, 19, 24), (108, 182, 255), (240, 163, 94))),
}

FRAME = """<!doctype html>
<style>iframe { width: 400px; height: 3000px; border: 0 }</style>
<iframe src="PAGE"></iframe>
<script>
onload = () => {
  const page = document.querySelector("iframe").contentDocument.documentElement;
  document.title = `${page.clientWidth} ${page.scrollWidth}`;
}
</script>
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(report_of(report(entry(World(accept=0.4, round_s=0.0225))))))
    return path


def chromium(*options: str, profile: Path) -> str:
    """Run it once; no name can be resolved, so that whatever the page asked for would fail to load."""
    run = subprocess.run(
        [
            str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", *options,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return run.stdout


@pytest.mark.parametrize("theme", THEMES)
def test_both_themes_show_page_and_drawings_in_their_colours(file: Path, tmp_path: Path, theme: str) -> None:
    scheme, colours = THEMES[theme]
    shot = tmp_path / "page.png"
    chromium(
        f"--blink-settings=preferredColorScheme={scheme}", "--window-size=1280,2600", f"--screenshot={shot}",
        file.as_uri(), profile=tmp_path / "profile",
    )  # fmt: skip
    image = Image.open(shot).convert("RGB")
    assert image.size == (1280, 2600)
    assert image.getpixel((3, 3)) == colours[0]
    counted = {colour: count for count, colour in image.getcolors(1 << 24) or []}
    # points and lines of the drawings: some of their pixels are the pure colour
    assert min(counted.get(colour, 0) for colour in colours) > 100, theme
    other = THEMES["dark" if theme == "light" else "light"][1]
    assert all(counted.get(colour, 0) == 0 for colour in other[1:]), "a drawing kept the other theme's colours"


def test_a_narrow_window_needs_no_sideways_scrolling(file: Path, tmp_path: Path) -> None:
    """In a frame of 400 pixels the page is 400 pixels wide; what is wider scrolls inside its own box."""
    probe = tmp_path / "frame.html"
    probe.write_text(FRAME.replace("PAGE", file.as_uri()))
    dom = chromium("--allow-file-access-from-files", "--dump-dom", probe.as_uri(), profile=tmp_path / "profile")
    client, scroll = dom.partition("<title>")[2].partition("</title>")[0].split()
    assert client == scroll == "400"
