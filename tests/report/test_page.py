"""The page as a whole: what it says, what it must not say, and that it stays alone."""

from __future__ import annotations

import base64
import hashlib
import re
import stat
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.report.pages import Page, read
from tests.report.runs import BLIND, REFUSED, Attempt, Made, write

from exhume.protocol.errors import InputError
from exhume.report import render
from exhume.runlog.store import Store

HOSTILE = "<script>alert('1')</script>\"><img src=x onerror=alert(2)>{{ 7*7 }}"
IMAGES = Made("images", bounded=False)
NOISY = Made(
    "noisy", (Attempt("glm", (0.4,)), BLIND), bounded=True, defences=("noise",), utility=0.7
)
TABLE = Made("table", shape=(7,), bounded=True)


def rendered(folder: Path, *made: Made, redact: bool = False, **options: int) -> Page:
    return read(render(write(folder, *made, **options), redact=redact))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return rendered(tmp_path_factory.mktemp("runs") / "run", IMAGES, NOISY, TABLE)


class TestAlone:
    def test_the_policy_allows_only_the_pages_own_style_and_script(self, whole: Page) -> None:
        (policy,) = [
            meta["content"]
            for meta in whole.all("meta")
            if meta.get("http-equiv") == "Content-Security-Policy"
        ]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        for kind in ("style", "script"):
            digest = hashlib.sha256(whole.insides[kind].encode()).digest()
            assert rules.pop(f"{kind}-src") == f"'sha256-{base64.b64encode(digest).decode()}'"
        assert rules == {
            "default-src": "'none'",
            "img-src": "data:",
            "base-uri": "'none'",
            "form-action": "'none'",
        }

    def test_nothing_inline_and_nothing_from_elsewhere(self, whole: Page) -> None:
        for tag, attributes in whole.tags:
            assert "style" not in attributes, tag
            assert not [name for name in attributes if name.startswith("on")], tag
            for name in ("src", "href", "srcset", "action"):
                value = attributes.get(name, "#")
                assert value.startswith(("#", "data:")), (tag, value)
        assert "url(" not in whole.insides["style"]
        assert "@import" not in whole.insides["style"]

    def test_links_lead_somewhere(self, whole: Page) -> None:
        ids = [attributes["id"] for _, attributes in whole.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        for link in whole.all("a"):
            assert link["href"].removeprefix("#") in ids

    def test_it_can_be_heard(self, whole: Page) -> None:
        for image in whole.all("img"):
            assert image["alt"]
        for header in whole.all("th"):
            assert header["scope"] in ("col", "row", "rowgroup")
        for drawing in whole.all("svg"):
            hidden = drawing.get("aria-hidden") == "true"
            assert hidden or drawing.get("aria-label") or drawing["height"] == "18"
        levels = [int(tag[1]) for tag, _ in whole.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))

    def test_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        path = render(write(tmp_path / "run", IMAGES))
        assert path == tmp_path / "run" / "report.html"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_hostile_names_stay_text(self, tmp_path: Path) -> None:
        attempts = (Attempt(f"glm{HOSTILE}", message=HOSTILE), REFUSED, BLIND)
        page = rendered(tmp_path / "run", Made(HOSTILE, attempts, title=HOSTILE))
        assert [t for t, _ in page.tags].count("script") == 1
        assert not [a for _, a in page.tags if "onerror" in a]
        assert page.text.count("<script>alert('1')</script>") > 20
        assert "49" not in {word.strip("<>") for word in page.text.split()}

    def test_the_same_records_give_the_same_bytes_anywhere(self, tmp_path: Path) -> None:
        pages = [render(write(tmp_path / n, IMAGES, TABLE)).read_bytes() for n in ("a", "b/c")]
        assert pages[0] == pages[1] == render(tmp_path / "a").read_bytes()
        assert str(tmp_path).encode() not in pages[0]


class TestWords:
    def test_the_verdict_comes_before_any_table(self, whole: Page) -> None:
        said = whole.text
        headline = said.index("2 of 3 settings: most targets rebuilt.", 100)
        bars = said.index("attacks reached 100 % [69–100 %]")
        assert (
            headline
            < bars
            < said.index("What ran, and what came out", bars)
            < said.index("What to do", bars)
        )
        assert "of 10 targets, closer than any record the adversary already had" in said
        assert "blind guess 0 %" in said
        assert "proven limit none no bound holds: not private" in said
        assert "The worst of 3 settings: images" in said
        names = [tag for tag, attributes in whole.tags if tag in ("h1", "dl", "table")]
        assert names[:3] == ["h1", "dl", "table"]

    def test_every_setting_has_its_bracket_and_the_worst_is_open(self, whole: Page) -> None:
        assert (
            "noisy A made-up setting 0 % [0–31 %] blind guess 0 % · proven limit 40 %" in whole.text
        )
        parts = [d for d in whole.all("details") if d.get("id", "").startswith("setting-")]
        assert ["open" in part for part in parts] == [True, False, False]

    def test_what_would_lower_it(self, whole: Page) -> None:
        assert "accuracy 70 % a bound holds for every attack" in whole.text
        assert "accuracy 90 % no defence" in whole.text

    def test_the_threat_and_the_bound_are_told(self, whole: Page) -> None:
        assert whole.text.count("Released: the weights of a model.") == 4
        assert "γ = 40 % where every blind guess has at most κ = 10 %" in whole.text

    def test_how_to_reproduce_it(self, whole: Page) -> None:
        assert "exhume audit made.toml --out here" in whole.text
        assert "Seed 7" in whole.text
        assert "summary.json" in whole.text
        assert "exhume 0.1.0, python 3.11" in whole.text

    def test_a_refused_attack_is_never_safe(self, whole: Page) -> None:
        heading = "Not run, because they are made for other releases: scaler"
        assert f"{heading} (the release holds no scaler)" in whole.text
        assert "does not apply × 10" not in whole.text
        trials = whole.text[whole.text.index("One row per attack and target") :]
        assert trials.count("does not apply – 0.2 did not run") == 20

    @pytest.mark.parametrize("status", ["CRASHED", "NOT_CONVERGED", "INVALID_RELEASE", "REFUSED"])
    def test_where_no_attack_ran_nothing_is_claimed(self, tmp_path: Path, status: str) -> None:
        attempt = Attempt("glm", (None,), (status,), "it went wrong", None)
        page = rendered(tmp_path / "run", Made("one", (attempt, BLIND)))
        assert "No result: no attack really ran." in page.text
        assert "no evidence of safety" in page.text
        assert "attacks reached not known" in page.text
        assert "it went wrong" in page.text
        assert "can be rebuilt" not in page.text
        assert "No attack that ran" not in page.text

    def test_an_attack_that_ran_on_some_targets(self, tmp_path: Path) -> None:
        attempt = Attempt("glm", (0.4, None), ("CONVERGED", "CRASHED"))
        page = rendered(tmp_path / "run", Made("one", (attempt, BLIND)))
        assert "On 5 targets no attack really ran: nothing is known about those." in page.text
        assert "Did not run on 5 targets: nothing is known about those." in page.text

    def test_without_the_truth_nothing_is_judged(self, tmp_path: Path) -> None:
        made = Made("one", known=False, count=1)
        page = rendered(tmp_path / "run", made)
        assert "Not judged: attacks ran, but the true record is not known." in page.text
        assert "What the attack returned" in page.text
        assert "What was rebuilt" not in page.text
        assert "It is a candidate, not a record" in page.text
        assert "not judged: the truth is not known" in page.text
        assert "glm itself estimates its error at 0.01, in the record's units." in page.text
        assert len([i for i in page.all("img") if i["src"].startswith("data:image/png")]) == 1
        assert "nearest known" not in page.text.replace("nearest known record", "")

    def test_without_the_truth_a_table_shows_what_was_rebuilt(self, tmp_path: Path) -> None:
        made = Made("one", known=False, count=1, shape=(3,))
        page = rendered(tmp_path / "run", made)
        assert f"{made.targets()[0, 0] + 0.01:.6f}" in page.text

    def test_attacks_above_the_bound_are_an_alarm(self, tmp_path: Path) -> None:
        page = rendered(tmp_path / "run", Made("broken", bounded=True), NOISY)
        assert "In broken attacks reached more than the bound allows" in page.text
        assert "more than the bound allows" not in rendered(tmp_path / "fine", NOISY, IMAGES).text

    def test_an_unfinished_run_says_so_first(self, tmp_path: Path) -> None:
        page = rendered(tmp_path / "run", IMAGES, expected=900)
        assert "Unfinished audit. 30 of 900 trials are done." in page.text
        assert page.text.index("Unfinished audit.") < page.text.index("attacks reached")
        assert "Unfinished" not in rendered(tmp_path / "done", IMAGES).text

    def test_a_run_that_has_hardly_begun(self, tmp_path: Path) -> None:
        Store.create(tmp_path / "new").close()
        page = read(render(tmp_path / "new"))
        assert "Unfinished audit." in page.text
        assert "No result: no setting has been measured." in page.text
        begun = rendered(tmp_path / "begun", Made("one", ()), expected=30)
        assert "No result: no attack really ran." in begun.text
        assert "No attack has run on this setting yet." in begun.text

    def test_where_nothing_follows_nothing_is_recommended(self, tmp_path: Path) -> None:
        said = rendered(tmp_path / "run", IMAGES).text
        assert "This run measured nothing that supports a recommendation." in said

    def test_what_is_no_run_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="is not a run folder"):
            render(tmp_path)


class TestRecords:
    def test_six_targets_three_pictures_each(self, whole: Page) -> None:
        # The noisy setting has its own; the first setting's stand on the first screen only.
        pictures = [i for i in whole.all("img") if i["src"].startswith("data:image/png")]
        assert len(pictures) == 2 * 18
        assert len({picture["src"] for picture in pictures[:18]}) >= 12

    def test_values_of_a_table_with_the_digits_that_differ(self, tmp_path: Path) -> None:
        made = Made("table", (Attempt("glm", (1e-9,)), BLIND), shape=(7,))
        page = rendered(tmp_path / "run", made)
        # The first target is the best one: on the first screen and again among all columns.
        for place in (0, 6):
            assert page.text.count(f"{made.targets()[0, place]:.6f}") == 4

    @pytest.mark.parametrize("shape", [(8, 8), (7,)])
    def test_redacted_no_picture_and_no_value(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        crashed = Attempt("odd", (None,), ("CRASHED",), "ValueError: 0.123987 is odd", None)
        made = Made("one", (Attempt("glm", (1e-9,)), crashed, BLIND), shape=shape)
        page = rendered(tmp_path / "run", made, redact=True)
        assert "data:image/png" not in page.source
        for value in made.targets().ravel():
            assert f"{value:.4f}" not in page.source
        assert "0.123987" not in page.source
        assert "ValueError: (text omitted)" in page.text
        assert "Redacted. This report omits the pictures and values of records" in page.text
        assert "attacks reached 100 %" in page.text

    def test_unredacted_the_same_run_shows_them(self, tmp_path: Path) -> None:
        made = Made("one", (Attempt("glm", (1e-9,)), BLIND), shape=(7,))
        page = rendered(tmp_path / "run", made)
        assert any(f"{value:.4f}" in page.source for value in made.targets()[:, 0])
        assert "private records" in page.text

    def test_removed_artefacts_leave_a_report(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "run", IMAGES)
        for path in (folder / "artefacts").iterdir():
            path.unlink()
        page = read(render(folder))
        assert "There is no reconstruction of this setting to show" in page.text
        assert "attacks reached 100 %" in page.text

    def test_estimates_may_be_infinite(self, tmp_path: Path) -> None:
        made = Made("one", (Attempt("glm", estimate=float("inf")), BLIND))
        assert 'data-v="Infinity"' in rendered(tmp_path / "run", made).source


class TestRedacted:
    def test_neither_page_replaces_the_other(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "run", IMAGES)
        whole = render(folder).read_bytes()
        redacted = render(folder, redact=True)
        assert redacted.name == "report-redacted.html"
        assert (folder / "report.html").read_bytes() == whole
        kept = redacted.read_bytes()
        render(folder)
        assert redacted.read_bytes() == kept != whole

    def test_a_redacted_page_under_the_old_name_is_not_replaced_by_private_records(
        self, tmp_path: Path
    ) -> None:
        folder = write(tmp_path / "run", IMAGES)
        old = render(folder, redact=True).rename(folder / "report.html")
        kept = old.read_bytes()
        with pytest.raises(InputError, match="is redacted, and this report would show private"):
            render(folder)
        assert old.read_bytes() == kept

    def test_a_hostile_title_does_not_make_a_page_look_redacted(self, tmp_path: Path) -> None:
        made = replace(IMAGES, title="<strong>Redacted.</strong>")
        render(write(tmp_path / "run", made))
        render(tmp_path / "run")


class TestSize:
    def test_more_than_2000_trials_are_cut_off_and_the_page_stays_small(
        self, tmp_path: Path
    ) -> None:
        message = "a long message " * 20
        attempts = (Attempt("glm", message=message), REFUSED, BLIND)
        made = [
            replace(IMAGES, name=f"setting {i}", attempts=attempts, count=35) for i in range(22)
        ]
        folder = write(tmp_path / "run", *made)
        path = render(folder)
        assert path.stat().st_size < 10e6
        page = read(path)
        assert "Shown are the first 2,000 of 2,310 trials" in page.text
        assert page.source.count('<td class="message">') == 2000
        assert page.text.count("Figures are drawn for the first 20 settings only.") == 2
