"""Who reads the report: on a phone, on paper, in the dark, or by ear."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from tests.browser.test_report_page import browser, wide
from tests.report.grids import SMALL
from tests.report.runs import BLIND, REFUSED, Attempt, Made, write

from exhume.report import render

__all__ = ["browser"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

OPEN = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
CUT = """(selectors) => selectors.flatMap((selector) => {
  const all = [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
  if (!all.length) return [`${selector}: nothing`];
  const inside = (e) => { const b = e.getBoundingClientRect();
    return b.left >= -0.5 && b.right <= innerWidth + 0.5 && b.width > 0
      && e.scrollWidth <= Math.ceil(b.width) + 1; };
  return all.filter((e) => !inside(e)).map((e) => `${selector}: ${e.outerHTML.slice(0, 120)}`);
})"""


def many(name: str = "many") -> Made:
    attempts = (Attempt("glm", (0.003, 0.02, 0.4)), REFUSED, BLIND)
    return Made(name, attempts, count=80, bounded=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    noisy = Made("noisy", (Attempt("glm", (0.4,)), BLIND), defences=("noise",), bounded=True)
    made = (many(), noisy, Made("table", shape=(7,)), Made("unjudged", known=False))
    return render(write(tmp_path_factory.mktemp("readers") / "run", *made))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(write(tmp_path_factory.mktemp("readers") / "grid", *SMALL))


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    # The policy of the page would stop the script that reads it.
    context = browser.new_context(**getattr(request, "param", {}), bypass_csp=True)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("which", ["report", "grid"])
@pytest.mark.parametrize(
    "page",
    [wide(1280), wide(390, color_scheme="dark")],
    indirect=True,
    ids=["light desktop", "dark phone"],
)
def test_axe_finds_no_violation(page: Any, which: str, request: pytest.FixtureRequest) -> None:
    page.goto(request.getfixturevalue(which).as_uri())
    page.evaluate(OPEN)
    found = Axe().run(page).response
    assert len(found["passes"]) > 20
    told = [f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]}" for v in found["violations"]]
    assert told == []


def test_axe_would_find_one(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    page.evaluate("document.querySelector('img').removeAttribute('alt')")
    assert "image-alt" in {v["id"] for v in Axe().run(page).response["violations"]}


@pytest.mark.parametrize("page", [wide(390)], indirect=True, ids=["phone"])
def test_a_phone_cuts_nothing(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    page.evaluate(OPEN)
    selectors = (
        "h1, .subject, .banner, .bars dd, .gallery img, .outcomes td, .outcomes th[scope=row], "
        ".compare td, #trial-table tbody tr:nth-child(-n+20) td"
    )
    assert page.evaluate(CUT, selectors.split(", ")) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_long_list_of_trials_is_folded_and_its_link_opens_it(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.locator("#trial-table").is_hidden()
    page.get_by_role("link", name="All trials").click()
    page.locator("#trial-table").wait_for(state="visible")


class TestPaper:
    def test_at_most_two_pages_without_the_appendix_and_more_with_it(
        self, page: Any, report: Path
    ) -> None:
        page.goto(report.as_uri())
        assert _pages(page.pdf(prefer_css_page_size=True)) <= 2
        page.get_by_label("Print the appendix").check()
        assert _pages(page.pdf(prefer_css_page_size=True)) > 3

    def test_no_json_and_no_control_is_printed(self, page: Any, report: Path) -> None:
        page.goto(report.as_uri())
        page.get_by_label("Print the appendix").check()
        page.emulate_media(media="print")
        page.evaluate(OPEN)
        for hidden in (".configuration", ".choice", ".banner", "#trial-table"):
            assert page.locator(hidden).is_hidden()
        assert page.locator(".appendix").is_visible()

    def test_every_page_has_the_banner(self, page: Any, report: Path) -> None:
        page.goto(report.as_uri())
        rules = page.evaluate(
            "[...document.styleSheets[0].cssRules].map((rule) => rule.cssText).join('\\n')"
        )
        assert '@top-center { content: "Confidential: shows private records' in rules


def _pages(content: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", content))
