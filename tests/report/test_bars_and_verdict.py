"""The first screen in numbers and words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.report.bars import line, span, three_bars
from exhume.report.numbers import number, percent
from exhume.report.verdict import Finding, contradicts, finding_of, verdict, worst_first
from exhume.runlog.setting import BoundPoint, CeilingCurve
from exhume.runlog.summary import Bracket, Row, Summary, rate

SHARES = st.floats(0, 1)


def bracket(
    setting: str = "one",
    reached: tuple[int, int] | None = (48, 50),
    blind: tuple[int, int] | None = (1, 50),
    *,
    ceiling: float | None = None,
    targets: int = 50,
    unanswered: int = 0,
) -> Bracket:
    return Bracket(
        setting=setting,
        title=f"The setting {setting}",
        attack=None if reached is None else "glm",
        reached=None if reached is None else rate(*reached),
        blind=None if blind is None else rate(*blind),
        ceiling=ceiling,
        ceiling_note="no bound holds: not private" if ceiling is None else "from 200 records",
        targets=targets,
        unanswered=unanswered,
    )


def row(setting: str, *, ran: int = 50, baseline: bool = False) -> Row:
    return Row(setting, "glm", baseline, 50, ran, {}, "", None, {}, None, None, 1.0, {})


def summary(*brackets: Bracket, rows: tuple[Row, ...] = ()) -> Summary:
    return Summary(1, "0.1.0", "", 0, 1.0, True, 50, 50, brackets, rows, (), {})


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


class TestGeometry:
    @settings(deadline=None, max_examples=60)
    @given(SHARES, SHARES)
    def test_a_span_ends_where_its_start_and_width_say(self, one: float, other: float) -> None:
        found = span(min(one, other), max(one, other))
        start, end, width = (
            float(x.removesuffix("%")) for x in (found.start, found.end, found.width)
        )
        assert 0 <= start <= end <= 100
        assert start + width == pytest.approx(end, abs=0.011)
        assert start == pytest.approx(100 * min(one, other), abs=0.006)

    def test_bars_are_as_long_as_the_rates(self) -> None:
        reached, blind, ceiling = three_bars(bracket(ceiling=0.72), Finding.REBUILT, 1.0)
        assert reached.length is not None
        assert blind.length is not None
        assert ceiling.length is not None
        assert (reached.length.width, blind.length.width) == ("96.00%", "2.00%")
        assert ceiling.length.width == "72.00%"
        # Clopper–Pearson of 48 of 50: 0.8629 to 0.9951 (R: binom.test(48, 50)).
        assert reached.interval is not None
        assert (reached.interval.start, reached.interval.end) == ("86.29%", "99.51%")
        assert plain(f"{reached.value} {reached.spread}") == "96 % [86–99.5 %]"

    def test_a_line_marks_the_same_places(self) -> None:
        found = line(bracket(ceiling=0.72), Finding.REBUILT, "setting-0")
        assert (found.at, found.blind_at) == ("96.00%", "2.00%")
        assert found.ruled_out is not None
        assert (found.ruled_out.start, found.ruled_out.width) == ("72.00%", "28.00%")

    @pytest.mark.parametrize("ceiling", [None, 1.0])
    def test_where_nothing_is_ruled_out_nothing_is_drawn_as_ruled_out(
        self, ceiling: float | None
    ) -> None:
        found = bracket(ceiling=ceiling)
        assert line(found, Finding.REBUILT, "a").ruled_out is None
        last = three_bars(found, Finding.REBUILT, 1.0)[2]
        assert last.kind == "unbounded"
        assert last.value == "none"

    def test_an_attack_that_did_not_run_has_no_bar(self) -> None:
        found = bracket(reached=None, blind=None)
        reached, blind, _ = three_bars(found, Finding.UNANSWERED, 1.0)
        assert reached.length is None
        assert reached.value == "not known"
        assert "no attack really ran" in reached.note
        assert blind.length is None

    def test_the_note_says_on_how_many_targets_the_attack_ran(self) -> None:
        found = three_bars(bracket(reached=(30, 40)), Finding.REBUILT, 1.0)[0]
        assert "the 40 targets (of 50) where the attack really ran" in found.note
        found = three_bars(bracket(), Finding.REBUILT, 0.5)[0]
        assert "within 0.5 × the distance of the nearest record" in found.note


class TestNumbers:
    @settings(deadline=None, max_examples=80)
    @given(SHARES)
    def test_only_all_is_all_and_only_nothing_is_nothing(self, share: float) -> None:
        assert (plain(percent(share)) == "100 %") == (100 * share >= 100)
        assert (plain(percent(share)) == "0 %") == (share <= 0)

    @settings(deadline=None, max_examples=80)
    @given(st.floats(0.001, 0.999))
    def test_a_percentage_is_off_by_half_a_unit_at_most(self, share: float) -> None:
        text = plain(percent(share))
        assert float(text.removesuffix(" %")) == pytest.approx(100 * share, abs=0.5 + 1e-9)

    @settings(deadline=None, max_examples=80)
    @given(st.floats(1e-300, 1e300))
    def test_a_number_keeps_its_size(self, value: float) -> None:
        assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.051)


class TestVerdict:
    @pytest.mark.parametrize(
        ("reached", "blind", "finding"),
        [
            ((50, 50), (1, 50), Finding.REBUILT),
            ((1, 1), (0, 1), Finding.REBUILT),
            ((10, 50), (1, 50), Finding.PARTLY),
            ((1, 50), (0, 50), Finding.PARTLY),
            ((1, 50), (1, 50), Finding.NOT_REBUILT),
            ((0, 50), (0, 50), Finding.NOT_REBUILT),
            # The lower end for 3 of 50 is 1.3 %, below the guess's 2 %.
            ((3, 50), (1, 50), Finding.NOT_REBUILT),
        ],
    )
    def test_success_must_be_above_the_blind_guess(
        self, reached: tuple[int, int], blind: tuple[int, int], finding: Finding
    ) -> None:
        assert finding_of(bracket(reached=reached, blind=blind), [row("one")]) is finding

    def test_an_attack_that_did_not_run_is_not_one_that_failed(self) -> None:
        nothing = bracket(reached=None)
        assert finding_of(nothing, [row("one", ran=0)]) is Finding.UNANSWERED
        assert finding_of(nothing, [row("one", baseline=True)]) is Finding.UNANSWERED
        assert finding_of(nothing, [row("one", ran=1)]) is Finding.UNJUDGED

    def test_the_worst_comes_first_and_the_rest_keeps_its_order(self) -> None:
        brackets = (bracket("a", (0, 50)), bracket("b", (20, 50)), bracket("c", (50, 50)))
        assert [b.setting for b in worst_first(summary(*brackets))] == ["c", "a", "b"]

    def test_of_two_alike_the_one_with_less_ruled_out_is_worse(self) -> None:
        brackets = (
            bracket("a", (0, 50), ceiling=0.4),
            bracket("b", (0, 50), ceiling=0.9),
            bracket("c", (0, 50)),
        )
        assert worst_first(summary(*brackets))[0].setting == "c"
        assert worst_first(summary(*brackets[:2]))[0].setting == "b"

    @pytest.mark.parametrize(("ceiling", "wrong"), [(0.86, True), (0.87, False), (None, False)])
    def test_an_interval_above_the_bound_contradicts_it(
        self, ceiling: float | None, wrong: bool
    ) -> None:
        # The lower end of 48 of 50 is 0.8629.
        assert contradicts(bracket(ceiling=ceiling)) is wrong

    def test_an_unanswered_setting_is_worse_than_one_that_withstood(self) -> None:
        brackets = (bracket("a", (0, 50)), bracket("b", None))
        found = verdict(summary(*brackets, rows=(row("a"), row("b", ran=0))))
        assert found.finding is Finding.UNANSWERED
        assert found.headline == "1 of 2 settings: no result, no attack really ran."
        assert "no evidence of safety" in found.explanation

    def test_the_headlines(self) -> None:
        def said(found: Bracket) -> str:
            return plain(verdict(summary(found, rows=(row("one"),))).headline)

        assert said(bracket()) == "A training record can be rebuilt from this release."
        assert said(bracket(reached=(7, 50))).endswith("could be rebuilt in part: 7 of 50.")
        assert said(bracket(reached=(0, 50))) == (
            "No attack that ran rebuilt a record: a stronger attack still might."
        )
        assert said(bracket(reached=(1, 50), ceiling=0.72)) == (
            "No attack that ran rebuilt a record more often than a blind guess: more than 72 % is "
            "ruled out for every attack."
        )
        assert "the true record is not known" in said(bracket(reached=None))

    def test_of_several_settings_the_headline_says_how_many(self) -> None:
        def said(*reached: tuple[int, int] | None, ceiling: float | None = None) -> str:
            found = [bracket(f"{i}", one, ceiling=ceiling) for i, one in enumerate(reached)]
            rows = tuple(row(f"{i}") for i in range(len(reached)))
            return plain(verdict(summary(*found, rows=rows)).headline)

        assert said((48, 50), (0, 50), (50, 50)) == "2 of 3 settings: most targets rebuilt."
        assert said((9, 50), (0, 50)) == "1 of 2 settings: some targets rebuilt."
        assert said(None, (0, 50)).startswith("1 of 2 settings: not judged")
        assert said((0, 50), (0, 50)).endswith(
            "in any of 2 settings: a stronger attack still might."
        )
        assert "more than 40 % is ruled out" in said((0, 50), (0, 50), ceiling=0.4)

    def test_what_was_measured_of_a_guess_stands_beside_what_is_proven_of_it(self) -> None:
        at = BoundPoint(1.0, kappa=0.44, gamma=0.9)
        curve = CeilingCurve(at=at, prior_samples=200)
        _, blind, _ = three_bars(bracket(), Finding.REBUILT, 1.0, curve)
        assert blind.value.replace("\u00a0", " ") == "2 %"
        assert "from 200 records it is proven that none exceeds 44 %" in plain(blind.note)

    def test_unanswered_targets_and_settings_are_named(self) -> None:
        brackets = (
            bracket("a", (0, 40), unanswered=10),
            bracket("b", (50, 50)),
            bracket("c", None),
        )
        found = verdict(summary(*brackets, rows=(row("a"), row("b"), row("c", ran=0))))
        assert found.finding is Finding.REBUILT
        assert "In 1 other setting nothing was judged" in found.explanation
        alone = verdict(summary(brackets[0], rows=(row("a"),)))
        assert "On 10 targets no attack really ran" in alone.explanation

    def test_a_run_without_settings_says_so(self) -> None:
        assert verdict(summary()).headline.startswith("No result")
