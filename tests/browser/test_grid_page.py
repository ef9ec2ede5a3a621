"""A grid of 2,000 trials in a real browser: soon there, and every cell leads to its trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.audit.small import wait_for
from tests.browser.test_report_page import CONTRAST, Opened, browser, wide
from tests.report.grids import SMALL, large, member
from tests.report.runs import BLIND, Attempt, write

from exhume.report import render

__all__ = ["browser"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOTHING = member(
    "nothing", attempts=(Attempt("geiping", (None,), ("NO_INFORMATION",), "zeros", None), BLIND)
)
COUNTS = """() => {
  const all = [...document.querySelectorAll('body *')];
  return {all: all.length, shown: all.filter((e) => e.checkVisibility()).length,
          images: document.images.length};
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The large grid."""
    return render(large(tmp_path_factory.mktemp("grid") / "large"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid with every kind of cell."""
    return render(write(tmp_path_factory.mktemp("grid") / "small", *SMALL, NOTHING))


@pytest.fixture
def opened(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    context = browser.new_context(**getattr(request, "param", {}))
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.complaints.append(message.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.goto(report.as_uri())
    yield found
    context.close()


def test_little_is_drawn_before_it_is_asked_for(browser: Any, report: Path) -> None:
    """What makes the large grid open quickly, on any machine: closed cells are not laid out."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(report.as_uri())
    found = page.evaluate(COUNTS)
    page.close()
    assert found["images"] <= 30, "2,200 pictures come in sheets"
    assert found["shown"] < 0.5 * found["all"]


@pytest.mark.parametrize(
    "opened",
    [wide(1280), wide(1280, java_script_enabled=False), wide(360)],
    indirect=True,
    ids=["desktop", "without JavaScript", "phone"],
)
def test_a_cell_opens_its_trials(opened: Opened) -> None:
    page = opened.page
    trials = page.locator("#grid-0-2-5")
    assert not trials.is_visible()
    page.locator(".heat a[href='#grid-0-2-5']").click()
    trials.wait_for(state="visible")
    assert trials.get_by_role("heading", name="attack 2 on defence number 5").is_visible()
    assert trials.locator("tbody tr").count() == 10
    tile = trials.locator(".tile").last
    assert tile.get_attribute("aria-label") == "rebuilt"
    size = tile.bounding_box()
    assert size is not None
    assert size["width"] == size["height"] == 48
    wait_for(lambda: trials.bounding_box()["y"] < 800)
    assert opened.complaints == []


def test_cells_can_be_reached_and_opened_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.locator(".heat a[href='#grid-0-1-0']").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#grid-0-1-1").wait_for(state="visible")
    page.locator("#grid-0-1-1").get_by_role("link", name="Back to the map").press("Enter")
    wait_for(lambda: 0 <= page.locator("#grid-0-map").bounding_box()["y"] < 800)


def test_tiles_show_their_sheet(opened: Opened) -> None:
    """A picture that the policy refused, or a class without a rule, would leave it empty."""
    first = opened.page.locator(".multiples .tile").first
    first.scroll_into_view_if_needed()
    background = first.evaluate("one => getComputedStyle(one).backgroundImage")
    assert background.startswith('url("data:image/png;base64,')
    drawn = first.screenshot()
    assert len(drawn) > 1000


@pytest.mark.parametrize("opened", [wide(360), wide(1280)], indirect=True, ids=["phone", "desktop"])
def test_it_never_scrolls_sideways(opened: Opened) -> None:
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_shade_can_be_read(browser: Any, report: Path, small: Path, scheme: Any) -> None:
    page = browser.new_page(color_scheme=scheme)
    seen = {}
    for path in (report, small):
        page.goto(path.as_uri())
        kinds = [*(f"h{i}" for i in range(9)), "cell-unknown", "cell-silent"]
        present = [k for k in kinds if page.locator(f".heat td.{k}").count()]
        chosen = [f".heat td.{k} small" for k in present]
        seen |= page.evaluate(CONTRAST, chosen)
    page.close()
    assert {name.split(".")[2].split()[0] for name in seen} >= {"h0", "h3", "h8", "cell-unknown"}
    # WCAG 2.2, success criterion 1.4.3.
    assert min(seen.values()) >= 4.5, seen
