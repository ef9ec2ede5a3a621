"""The site is built without a warning, needs no network, searches, and fits a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.browser.test_report_page import browser

__all__ = ["browser"]
# Ten seconds: this is where continuous integration builds the site.
pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGES = (
    *("index.html", "gallery.html", "reference/toml.html", "reference/attacks/index.html"),
    *("reference/attacks/geiping.html", "reference/api/exhume.attacks.html"),
    *("how-to/sign-a-release.html", "results/balle2022.html"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert not built.stderr, "a warning is an error"
    return folder


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_load_nothing_from_elsewhere_and_fit(browser: Any, site: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked, complaints, failed = list[str](), list[str](), list[tuple[str, str]]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for name in PAGES:
        page.goto((site / name).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    page.close()
    assert not complaints
    # Leaving a page ends the load of its icon: that is no failure. A file that is missing is.
    assert not [(url, why) for url, why in failed if why != "net::ERR_ABORTED"]
    files = {urlsplit(url).path for url in asked if url.startswith("file:")}
    assert files
    assert not [path for path in files if not Path(unquote(path)).exists()]
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in asked)


def test_search_finds_a_key_from_a_disk(browser: Any, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    # All letters with one key: what is found of the first few may be shown first.
    page.keyboard.insert_text("shadow_targets_from")
    page.keyboard.press("End")
    page.locator(".md-search-result__link").first.wait_for(state="attached")
    found = page.locator(".md-search-result__link").first.get_attribute("href")
    page.close()
    assert found.startswith((site / "reference/toml.html").as_uri())


def test_every_path_from_the_first_page_leads_on(browser: Any, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    cards = page.locator(".grid.cards li")
    assert cards.count() == 4
    for i in range(4):
        target = cards.nth(i).locator("a").get_attribute("href")
        assert (site / target).is_file(), target
    page.close()


def test_on_a_phone_a_key_is_a_block_that_needs_no_scrolling(browser: Any, site: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    for name in ("reference/toml.html", "reference/attacks/geiping.html"):
        page.goto((site / name).as_uri())
        wide = "tables => tables.filter(t => t.getBoundingClientRect().right > innerWidth).length"
        assert page.locator(".keys table").count() >= 1
        assert page.eval_on_selector_all(".keys table, .keys td", wide) == 0, name
    page.close()
