"""A real audit, small enough to wait for, from its configuration to the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.pages import Page, read

from exhume.audit import Serial, make_plan, run
from exhume.config import parse
from exhume.report import render

AUDIT = """
[[setting]]
name = "pictures"
data = { name = "fashion-mnist-small", classes = [2, 6], fixed_set = 60 }
release = { model = "logistic", penalty = { strength = 1.0, intercept = true } }

[[setting]]
name = "measurements"
data = { name = "breast-cancer", fixed_set = 60, units = "fixed-set" }
release = { model = "logistic", penalty = { strength = 1.0, intercept = true } }

[[setting]]
name = "measurements, noise"
data = { name = "breast-cancer", fixed_set = 60, units = "fixed-set" }
[setting.release]
model = "logistic"
penalty = { strength = 1.0, intercept = true }
defences = [{ name = "output-perturbation", noise_multiplier = 1.0, norm_bound = 8.0 }]

[audit]
targets = 6
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "run"
    run(make_plan(parse(AUDIT, folder=Path(), source="test")), folder, Serial())
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return read(render(folder))


def test_the_first_screen_says_what_the_attacks_found(page: Page) -> None:
    assert "2 of 3 settings: most targets rebuilt." in page.text
    # Clopper–Pearson of 6 of 6: from 0.025^(1/6) = 0.541.
    assert "attacks reached 100 % [54–100 %] of 6 targets" in page.text


def test_the_defended_setting_stands_beside_the_undefended_one(page: Page) -> None:
    said = page.text[page.text.index("The defences measured") :]
    table = said[: said.index("Settings")]
    assert table.index("measurements 100 %") < table.index("measurements, noise")
    assert "no defence" in table
    assert "pictures" not in table


def test_every_setting_has_three_figures_in_two_lights(page: Page) -> None:
    assert len(page.all("source")) == 9
    figures = [i for i in page.all("img") if i["src"].startswith("data:image/svg+xml")]
    assert len(figures) == 9


def test_rendering_again_changes_nothing(folder: Path, page: Page) -> None:
    assert render(folder).read_text(encoding="utf-8") == page.source


def test_what_was_rebuilt_is_pixel_for_pixel_the_target(page: Page) -> None:
    pictures = [i["src"] for i in page.all("img") if i["src"].startswith("data:image/png")]
    target, rebuilt, nearest = pictures[:6], pictures[6:12], pictures[12:18]
    assert target == rebuilt
    assert not set(target) & set(nearest)


GRID = """
[[setting]]
name = "clothes"
data = { name = "fashion-mnist-small", classes = [2, 6], fixed_set = 60 }
release = { model = "logistic", penalty = { strength = 1.0, intercept = true } }

[setting.grid]
"four decimals" = [{ name = "rounding", decimals = 4 }]
"noise" = [{ name = "noise", size = 0.1 }]

[audit]
targets = 4
"""


def test_a_grid_of_a_file_is_a_map_with_pictures(tmp_path: Path) -> None:
    run(make_plan(parse(GRID, folder=Path(), source="test")), tmp_path / "run", Serial())
    page = read(render(tmp_path / "run"))
    links = [link for link in page.all("a") if link["href"].startswith("#grid-0-0-")]
    said = [link["aria-label"] for link in links]
    assert [text.partition(":")[0] for text in said] == [
        "glm, no defence",
        "glm, four decimals",
        "glm, noise",
    ]
    assert "4 rebuilt" in said[0]
    assert "Of 2 defences against which attacks ran, noise protects best" in page.text
    tiles = {s["class"] for s in page.all("span") if "tile" in s.get("class", "")}
    # Two attacks on three settings, the target and its nearest known record, of four targets.
    assert len(tiles) == 4 * (2 * 3 + 1) + 3
