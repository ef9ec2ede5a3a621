"""The report in a real browser: alone, sortable, readable everywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.report.runs import BLIND, REFUSED, Attempt, Made, write

from exhume.report import render
from exhume.runlog.table_columns import TableColumn

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LIMIT_MS = 300_000
"""For what never comes: seconds on an idle machine may be minutes beside other tests."""
ERRORS = (0.003, 0.02, 0.19, 0.4, None)
COLUMNS = (
    TableColumn("age at the first visit to the clinic", "integer", unit="years", step=1.0),
    TableColumn("bmi", "continuous", step=0.1),
    TableColumn("smoker", "categorical", ("never", "pipe"), counts=(97, 3)),
    TableColumn("ward", "categorical", ("a", "b"), counts=(50, 50), given=True),
    *(TableColumn(f"value {place}", "continuous", step=1e-6) for place in range(36)),
)
LONG = "a title without any end " * 6 + "x" * 300


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium; playwright's own download is not needed."""
    path = shutil.which("chromium")
    if path is None:
        why = "no chromium on the PATH: the report was not opened in a browser"
        (pytest.fail if os.environ.get("EXHUME_REQUIRE_BROWSER") == "1" else pytest.skip)(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=path, args=FLAGS, headless=True, timeout=LIMIT_MS
        )
        yield Patient(found)
        found.close()


@dataclass(frozen=True)
class Patient:
    """A browser whose pages may be as slow as a busy machine makes them."""

    inner: Any

    def new_context(self, **options: Any) -> Any:
        context = self.inner.new_context(**options)
        context.set_default_timeout(LIMIT_MS)
        return context

    def new_page(self, **options: Any) -> Any:
        page = self.inner.new_page(**options)
        page.set_default_timeout(LIMIT_MS)
        return page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    statuses = ("CONVERGED", "CONVERGED", "APPROXIMATE", "CONVERGED", "CRASHED")
    attempts = (Attempt("glm", ERRORS, statuses), REFUSED, BLIND)
    folder = write(
        tmp_path_factory.mktemp("browser") / "run",
        Made("images", attempts, bounded=True, count=20),
        Made("table", attempts, title=LONG, columns=COLUMNS, count=20),
        Made("<b>noisy", (Attempt("glm", (0.4,)), BLIND), defences=("noise",), bounded=True),
    )
    return render(folder)


@dataclass
class Opened:
    """A page, and everything it complained about or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def opened(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The report; a mark's parameter gives the browser context's options."""
    context = browser.new_context(**getattr(request, "param", {}))
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.complaints.append(message.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", lambda asked: found.requests.append(asked.url))
    found.page.goto(report.as_uri())
    yield found
    context.close()


def column(page: Any, index: int) -> list[str]:
    """The visible cells of one column of the table of trials."""
    cells: list[str] = page.eval_on_selector_all(
        "#trial-table tbody tr:not([hidden])",
        f"rows => rows.map(row => row.cells[{index}].textContent)",
    )
    return cells


def wide(width: int, **options: Any) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": 800}, **options}


@pytest.mark.parametrize(
    "opened",
    [wide(360), wide(1280, color_scheme="dark"), wide(360, java_script_enabled=False)],
    indirect=True,
    ids=["phone", "dark desktop", "phone without JavaScript"],
)
def test_it_complains_about_nothing_and_asks_for_nothing(opened: Opened, report: Path) -> None:
    opened.page.wait_for_timeout(200)
    assert opened.complaints == []
    asked = [url for url in opened.requests if not url.startswith("data:")]
    assert asked == [report.as_uri()]


def test_the_policy_stops_what_it_should(opened: Opened) -> None:
    """What the other tests rely on: that a violation would be seen."""
    page = opened.page
    with page.expect_console_message(lambda message: "inline style" in message.text):
        page.evaluate("document.body.setAttribute('style', 'color: red')")
    with (
        page.expect_request("**/x.png"),
        page.expect_console_message(lambda message: "x.png" in message.text),
    ):
        page.evaluate("document.body.append(Object.assign(new Image(), {src: 'x.png'}))")
    stopped = [text for text in opened.complaints if "Content Security Policy" in text]
    assert len([text for text in stopped if "inline style" in text]) == 1
    assert len([text for text in stopped if "x.png" in text]) == 1
    assert [url for url in opened.requests if url.endswith("x.png")]


@pytest.mark.parametrize("opened", [wide(360), wide(1280)], indirect=True, ids=["360", "1280"])
def test_the_page_never_scrolls_sideways(opened: Opened) -> None:
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    width = page.evaluate("document.documentElement.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    broken = "images => images.filter(i => !i.complete || i.naturalWidth === 0).length"
    assert page.eval_on_selector_all("img", broken) == 0


@pytest.mark.parametrize("opened", [wide(390)], indirect=True, ids=["phone"])
def test_on_a_phone_no_table_is_cut(opened: Opened) -> None:
    """Nothing needs to be scrolled sideways, and no cell runs into the next one."""
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    cut = """all => all.filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1)
      .map(e => e.getAttribute('aria-label') ?? e.textContent)"""
    assert page.eval_on_selector_all(".scroll, th, td", cut) == []
    named = page.eval_on_selector_all(
        "table.attacks tbody tr:first-child td",
        "cells => cells.map(c => getComputedStyle(c, '::before').content)",
    )
    assert {'"Really ran"', '"Success"', '"rmse"', '"Time"'} <= set(named)


def test_columns_sort_both_ways_with_empty_cells_last(opened: Opened) -> None:
    page = opened.page
    button = page.get_by_role("button", name="Distance")
    button.focus()
    page.keyboard.press("Enter")
    up = column(page, 4)
    numbers = [float(text) for text in up if text != "–"]
    assert numbers == sorted(numbers)
    assert up == [*up[: len(numbers)], *["–"] * (len(up) - len(numbers))]
    assert 0 < len(numbers) < len(up)
    page.keyboard.press("Enter")
    assert [float(text) for text in column(page, 4) if text != "–"] == sorted(numbers)[::-1]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Distance")
    page.get_by_role("button", name="Setting").click()
    assert column(page, 0) == sorted(column(page, 0))


def test_trials_can_be_filtered(opened: Opened) -> None:
    page = opened.page
    total = len(column(page, 0))
    assert total == 140
    page.get_by_role("combobox", name="Status").select_option("crashed")
    assert set(column(page, 3)) == {"crashed"}
    page.get_by_role("combobox", name="Setting").select_option("images")
    assert column(page, 0) == ["images"] * 4
    assert page.locator("#count").inner_text() == "4 of 140 trials"
    page.get_by_role("combobox", name="Status").select_option("")
    page.get_by_role("combobox", name="Setting").select_option("<b>noisy")
    page.get_by_role("searchbox", name="Search").fill("CONSTANT guess")
    assert set(column(page, 1)) == {"oblivious"}
    assert len(column(page, 1)) == 10


def test_a_setting_opens_by_keyboard_and_by_link(opened: Opened) -> None:
    page = opened.page
    second = page.locator("#setting-1")
    assert page.locator("#setting-0").get_attribute("open") is not None
    assert second.get_attribute("open") is None
    second.locator("summary").focus()
    page.keyboard.press("Enter")
    assert second.get_by_role("heading", name="Threat model").is_visible()
    page.locator("ol.lines a").last.click()
    page.locator("#setting-2[open]").wait_for()


@pytest.mark.parametrize(
    "opened", [wide(1280, color_scheme="dark")], indirect=True, ids=["dark first"]
)
def test_dark_and_light_both_have_contrast_and_their_own_figures(opened: Opened) -> None:
    page = opened.page
    shown = "document.querySelector('picture img').currentSrc"
    dark, dark_figure = _contrast(page), page.evaluate(shown)
    page.emulate_media(color_scheme="light")
    # A browser takes the other picture in its own time.
    page.wait_for_function(f"before => {shown} !== before", arg=dark_figure)
    light = _contrast(page)
    for ratios in (dark, light):
        # WCAG 2.2, success criterion 1.4.3: 4.5 to 1 for text of any size.
        assert min(ratios.values()) >= 4.5, ratios


STATES = ("found-", "cell-", "row-", "judged-")
STYLED = """(states) => {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  const flat = rules.flatMap((rule) => rule.cssRules?.length ? [...rule.cssRules] : [rule]);
  const places = {};
  for (const element of document.querySelectorAll('[class]')) {
    const mine = [...element.classList].filter((name) => states.some((s) => name.startsWith(s)));
    for (const name of mine) (places[name] ??= new Set()).add(element.tagName);
  }
  const partly = document.createElement('details');
  partly.className = 'setting found-partly';
  document.querySelector('main').append(partly);
  const style = getComputedStyle(partly);
  const bare = /^\\.(partly|unknown|silent|rebuilt|unjudged|unanswered|real)\\b/;
  const loose = flat.map((rule) => rule.selectorText ?? '').filter((name) => bare.test(name));
  return {image: style.backgroundImage, shadow: style.boxShadow, loose,
          places: Object.fromEntries(Object.entries(places).map(([k, v]) => [k, [...v]]))};
}"""


def test_a_state_of_a_setting_is_not_drawn_as_a_state_of_a_cell(opened: Opened) -> None:
    """A setting rebuilt in part once had the amber corner of a cell that ran in part."""
    found = opened.page.evaluate(STYLED, list(STATES))
    assert found["image"] == "none"
    assert found["shadow"] == "none"
    assert found["loose"] == []
    kinds = {name: set(tags) for name, tags in found["places"].items()}
    assert kinds["found-rebuilt"] == {"SECTION", "DETAILS", "LI"}
    assert all(tags <= {"TD", "DIV"} for name, tags in kinds.items() if name.startswith("cell-"))


def _contrast(page: Any) -> dict[str, float]:
    """The contrast of each kind of text with what is behind it, by its selector."""
    selectors = ["body", "h1", ".which", ".note", "a", ".status.no-run", "figcaption", ".differs"]
    found: dict[str, float] = page.evaluate(CONTRAST, selectors)
    return found


CONTRAST = """(selectors) => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const rgb = parts(getComputedStyle(at).backgroundColor);
      if (rgb.length < 4 || rgb[3] > 0) return rgb;
    }
    return [255, 255, 255];
  };
  return Object.fromEntries(selectors.map((selector) => {
    const element = document.querySelector(selector);
    const both = [light(parts(getComputedStyle(element).color)), light(behind(element))].sort();
    return [selector, (both[1] + 0.05) / (both[0] + 0.05)];
  }));
}"""


@pytest.mark.parametrize(
    "opened", [wide(360, java_script_enabled=False)], indirect=True, ids=["without JavaScript"]
)
def test_without_javascript_everything_is_there_to_read(opened: Opened) -> None:
    page = opened.page
    assert page.locator("h1").inner_text() == "2 of 3 settings: most targets rebuilt."
    assert page.locator("#controls").is_hidden()
    assert page.locator("#trial-table tbody tr").count() == 140
    page.locator("#trial-table").scroll_into_view_if_needed()
    assert page.locator("#trial-table tbody tr").first.is_visible()
    assert page.locator("#trial-table button").count() == 0


def test_it_prints(opened: Opened) -> None:
    content = opened.page.pdf(format="A4")
    assert content.startswith(b"%PDF")
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.locator("#trial-table").is_hidden()
    assert opened.page.locator("nav").is_hidden()
    background = "getComputedStyle(document.body).backgroundColor"
    assert opened.page.evaluate(background) == "rgb(255, 255, 255)"
