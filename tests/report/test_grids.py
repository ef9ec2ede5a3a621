"""Grids of defences in the page: the map, its trials, the pictures, and what is never "safe"."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.report.grids import SMALL, large, member
from tests.report.pages import Page, read
from tests.report.runs import BLIND, Attempt, Made, write

from exhume.report import render
from exhume.report.drill_down import MOST

HOSTILE = "<b onclick=alert(1)>\"'{{ 7*7 }}"
PARTLY = member(
    "partly",
    attempts=(
        Attempt("geiping", (0.1, None, 0.2), ("APPROXIMATE", "CRASHED", "CONVERGED")),
        BLIND,
    ),
)
NOTHING = member(
    "nothing", attempts=(Attempt("geiping", (None,), ("NO_INFORMATION",), "zeros", None), BLIND)
)


def rendered(folder: Path, *made: Made, redact: bool = False) -> Page:
    return read(render(write(folder, *made), redact=redact))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return rendered(tmp_path_factory.mktemp("grids") / "run", *SMALL, PARTLY, NOTHING)


def cells(page: Page) -> dict[str, dict[str, str]]:
    """The map's links by where they lead, each with the class of its cell."""
    found, last = {}, {}
    for tag, attributes in page.tags:
        if tag == "td":
            last = attributes
        if tag == "a" and re.fullmatch(r"#grid-\d+-\d+-\d+", attributes["href"]):
            found[attributes["href"]] = {**attributes, "class": last.get("class", "")}
    return found


class TestMap:
    def test_a_cell_has_the_mean_error_of_the_trials_that_ran(self, page: Page) -> None:
        found = cells(page)
        assert len(found) == 2 * 6
        said = found["#grid-0-0-0"]["aria-label"]
        assert "geiping, no defence: mean error 0.045 on 6 targets, PSNR 29.1 dB, 6 rebuilt" in said
        # Of 0.1, nothing and 0.2 in turn.
        partly = found["#grid-0-0-4"]["aria-label"]
        assert "geiping, partly: mean error 0.15 on 4 targets" in partly
        assert "crashed on 2, which is no evidence of safety" in partly
        assert "4 of 6 ran" in page.text
        assert "cell-partly" in found["#grid-0-0-4"]["class"].split()

    def test_the_strongest_of_each_column_is_marked(self, page: Page) -> None:
        marked = [link for link, cell in cells(page).items() if "strongest" in cell["class"]]
        # Where the attack found nothing the guess is as strong; where none ran nothing is marked.
        assert marked == ["#grid-0-0-0", "#grid-0-0-1", "#grid-0-0-2", "#grid-0-0-4", "#grid-0-1-5"]

    def test_what_did_not_run_looks_like_nothing_else(self, page: Page) -> None:
        found = cells(page)
        stopped, silent = found["#grid-0-0-3"], found["#grid-0-0-5"]
        assert stopped["class"] == "cell-unknown"
        assert "mean error 0.3 on 6 targets" in stopped["aria-label"]
        assert "did not converge, which is no evidence of safety" in stopped["aria-label"]
        assert silent["class"] == "cell-silent"
        assert silent["aria-label"] == "geiping, nothing: found no information"
        said = "Against sign no attack finished: that is no evidence of safety."
        assert said in page.text

    def test_where_some_ran_and_none_left_anything_nothing_is_coloured(
        self, tmp_path: Path
    ) -> None:
        mixed = Attempt("geiping", (None,), ("NO_INFORMATION", "CRASHED"), "odd", None)
        page = rendered(tmp_path / "run", SMALL[0], member("odd", attempts=(mixed, BLIND)))
        cell = cells(page)["#grid-0-0-1"]
        assert cell["class"] == "cell-unknown"
        assert "crashed on 3, which is no evidence of safety" in cell["aria-label"]

    def test_the_colour_is_relative_to_the_blind_guess(self, page: Page) -> None:
        found = cells(page)
        # The guess errs by 0.25, 0.3 and 0.35 in turn: 0.3, and eight steps below it.
        shades = [found[f"#grid-0-0-{c}"]["class"].split()[0] for c in (0, 1, 2, 4)]
        assert shades == [f"h{int(8 * error / 0.3)}" for error in (0.045, 0.22, 0.16, 0.15)]
        assert {found[f"#grid-0-1-{c}"]["class"].split()[0] for c in range(6)} == {"h8"}

    def test_attacks_made_for_other_releases_are_named_and_left_out(self, tmp_path: Path) -> None:
        refused = Attempt("scaler", (None,), ("REFUSED",), "no scaler", None)
        made = [replace(one, attempts=(*one.attempts, refused)) for one in SMALL]
        page = rendered(tmp_path / "run", *made)
        assert "Not in the map, because they are made for other releases: scaler." in page.text
        assert len(cells(page)) == 2 * 4


class TestTrials:
    def test_every_cell_leads_to_its_trials(self, page: Page) -> None:
        ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
        assert {link.removeprefix("#") for link in cells(page)} <= ids
        part = page.source[page.source.index('id="grid-0-0-1"') :]
        own = " ".join(re.sub(r"<[^>]*>", " ", part[: part.index("</table>")]).split())
        assert own.count("converged") == 6 + 1
        assert own.count("0.22") == own.count("0.24") == 2

    def test_trials_that_did_not_run_say_why(self, page: Page) -> None:
        part = page.source[page.source.index('id="grid-0-0-3"') :]
        part = part[: part.index("</table>")]
        assert part.count("status no-run") == 6
        assert "no progress for 100 steps" in part
        assert "rebuilt</td>" not in part

    def test_many_trials_are_cut_off_and_counted(self, tmp_path: Path) -> None:
        count = MOST // 4 + 5
        made = [replace(one, count=count, shape=(7,)) for one in SMALL[:2]]
        page = rendered(tmp_path / "run", *made)
        assert page.text.count(f"{MOST // 4} of {count} trials shown.") == 4

    def test_a_member_is_short_where_the_grid_shows_it(self, page: Page) -> None:
        hint = "The grid above shows its errors, pictures and trials."
        assert page.text.count(hint) == 5
        pictures = [p for p in page.all("img") if p["src"].startswith("data:image/png")]
        assert len(pictures) == 3 * 6


class TestPictures:
    def test_the_same_target_by_every_attack_behind_every_defence(self, page: Page) -> None:
        # Errors 0.05, 0.01, 0.09, 0.03, 0.07, 0.02: the lower median is target 3, 0.03.
        assert "Target 3: the median by the error of geiping without a defence." in page.text
        spoken = [s.get("aria-label", "") for s in page.all("span")]
        for said in ("no defence: error 0.03", "noise: error 0.2", "prune: error 0.15"):
            assert f"geiping, {said}" in spoken
        assert "geiping, sign: error 0.3, but the attack's status is: did not converge" in spoken
        assert "geiping, nothing: found no information" in spoken

    def test_a_tile_is_the_record_that_it_is_said_to_be(self, page: Page) -> None:
        sheet = sheet_of(page, "g0t3")
        targets = SMALL[0].targets()
        expected = {
            (0, 0): targets[3],
            (0, 1): targets[3] + 0.2,
            (1, 0): targets[3] + 0.03,
            (1, 1): targets[3] + 0.2,
            (2, 2): targets[3] + 0.25,
        }
        assert sheet.shape == (3 * 8, 6 * 8)
        for (row, column), record in expected.items():
            tile = sheet[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            assert np.array_equal(tile, np.rint(255 * np.clip(record, 0, 1)))
        rules = page.insides["style"]
        assert ".g0c4{background-position-x:-4em}" in rules
        assert ".g0r2{background-position-y:-2em}" in rules
        assert ".g0{height:1em;background-size:6em 3em}" in rules

    def test_members_with_other_targets_are_not_passed_off_as_the_same(
        self, tmp_path: Path
    ) -> None:
        other = replace(SMALL[1], shape=(8, 4))
        page = rendered(tmp_path / "run", SMALL[0], other, SMALL[2])
        tiles = {s["class"] for s in page.all("span") if "tile" in s.get("class", "")}
        assert "tile g0 g0t3 g0r1 g0c2" in tiles
        assert "tile g0 g0t3 g0r1 g0c1" not in tiles

    def test_redacted_no_picture_and_no_value(self, tmp_path: Path) -> None:
        crashed = (
            Attempt("geiping", (None,), ("CRASHED",), "ValueError: 17.25 is odd", None),
            BLIND,
        )
        page = rendered(tmp_path / "run", *SMALL, member("odd", attempts=crashed), redact=True)
        assert "data:image/png" not in page.source
        assert not [s for s in page.all("span") if "tile" in s.get("class", "")]
        assert "17.25" not in page.source
        assert len(cells(page)) == 10
        assert "noise protects best" in page.text

    @pytest.mark.parametrize("shape", [(8, 8), (7,)])
    def test_without_artefacts_or_pictures_there_is_still_a_grid(
        self, tmp_path: Path, shape: tuple[int, ...]
    ) -> None:
        folder = write(tmp_path / "run", *(replace(one, shape=shape) for one in SMALL))
        for path in (folder / "artefacts").iterdir():
            path.unlink()
        page = read(render(folder))
        assert "The same record behind every defence" not in page.text
        assert len(cells(page)) == 8


class TestPage:
    def test_the_first_screen_says_which_defence_leaves_the_least_and_its_cost(
        self, page: Page
    ) -> None:
        first = page.text[: page.text.index("What the adversary had")]
        assert "Of 4 defences against which attacks ran" in first
        assert "nothing protects best: an error of 0.300 [" in first
        assert "where no attack did better than a blind guess, against 0.045" in first

    def test_defences_of_a_grid_are_compared_in_one_table(self, page: Page) -> None:
        said = page.text[page.text.index("The defences measured") :]
        table = said[: said.index("Settings")]
        assert table.count("no defence") == 1
        assert table.index("no defence") < table.index("net, noise") < table.index("net, sign")

    def test_models_trained_with_a_defence_tell_its_cost(self, tmp_path: Path) -> None:
        page = rendered(tmp_path / "run", *(replace(one, utility=None) for one in SMALL))
        said = page.text[page.text.index("The defences measured") :]
        table = said[: said.index("Settings")]
        assert "accuracy 90 % no defence" in table
        assert "accuracy 80 % measured against these attacks only" in table

    def test_it_stays_alone_and_can_be_heard(self, page: Page) -> None:
        style = page.insides["style"]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in page.source.replace("&#39;", "'")
        for address in re.findall(r"url\(([^)]*)\)", style):
            assert address.startswith('"data:image/png;base64,')
        for tag, attributes in page.tags:
            assert "style" not in attributes, tag
            if attributes.get("role") == "img":
                assert attributes.get("aria-label"), tag
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        assert {link["href"].removeprefix("#") for link in page.all("a")} <= set(ids)

    def test_hostile_names_stay_text(self, tmp_path: Path) -> None:
        hostile = replace(member(HOSTILE, 0.1), attempts=(Attempt(f"a{HOSTILE}"), BLIND))
        page = rendered(tmp_path / "run", SMALL[0], hostile)
        assert not [a for _, a in page.tags if "onclick" in a]
        assert HOSTILE in page.text

    def test_two_grids_have_their_own_sections(self, tmp_path: Path) -> None:
        others = [
            replace(one, name=f"other {one.name}", group="other", accuracies=()) for one in SMALL
        ]
        page = rendered(tmp_path / "run", *SMALL, *others)
        assert "net: attacks against defences" in page.text
        assert "other: attacks against defences" in page.text
        assert {link.split("-")[1] for link in cells(page)} == {"0", "1"}
        assert "at a cost that was not measured" in page.text

    def test_the_same_records_give_the_same_bytes(self, tmp_path: Path) -> None:
        pages = [render(write(tmp_path / n, *SMALL)).read_bytes() for n in "ab"]
        assert pages[0] == pages[1]

    def test_two_thousand_trials_stay_small(self, tmp_path: Path) -> None:
        path = render(large(tmp_path / "run"))
        assert path.stat().st_size < 10e6
        page = read(path)
        assert len(cells(page)) == 11 * 20
        assert page.source.count('class="tile g0 g0t0 g0r1 ') > 20
        drawn = [i for i in page.all("img") if i["src"].startswith("data:image/svg")]
        assert len(drawn) < 10


def sheet_of(page: Page, name: str) -> np.ndarray:
    """A grey contact sheet, decoded with nothing but zlib."""
    found = re.search(
        rf'\.{name}{{background-image:url\("data:image/png;base64,([^"]*)', page.source
    )
    assert found is not None
    content = base64.b64decode(found.group(1))
    width, height, depth, kind = struct.unpack(">IIBB", content[16:26])
    assert (depth, kind) == (8, 0)
    start = content.index(b"IDAT")
    (size,) = struct.unpack(">I", content[start - 4 : start])
    rows = np.frombuffer(zlib.decompress(content[start + 4 : start + 4 + size]), np.uint8)
    return rows.reshape(height, width + 1)[:, 1:]
