"""The trade-off in picture and words, and labels that keep off each other."""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.report.label_places import Box, placed
from exhume.report.png import COLOURS, indexed
from exhume.report.theme import BOUND, Drawing
from exhume.report.tradeoffs import answer, cautions, tradeoff_part
from exhume.runlog.strength import Strength
from exhume.runlog.tradeoff import Contender, Point, Tradeoff, UtilityLoss, Winner

FRAME = Box(50, 40, 530, 320)


def point(
    defence: str,
    error: float,
    *,
    loss: float | None = None,
    front: bool | None = None,
    blind: bool = False,
    answered: bool = True,
    **more: object,
) -> Point:
    attack = "oblivious" if blind else "geiping"
    strength = Strength(error, error - 0.01, error + 0.01, attack, blind, {}, answered)
    utility = None if loss is None else UtilityLoss(loss, loss - 0.005, loss + 0.005, 0.9 - loss)
    made = Point(f"net, {defence}", defence, strength, utility, front)
    return replace(made, front_probability=None if front is None else float(front), **more)


def tradeoff(
    *points: Point, measure: str = "accuracy", winners: tuple[Winner, ...] = ()
) -> Tradeoff:
    return Tradeoff("net", "rmse", measure, 8, 3, 0.3, points, winners)


MEASURED = tradeoff(
    point("", 0.05, loss=0.0, front=True, floor=0.01, floor_binds="unbiased attacks"),
    point("noise", 0.22, loss=0.10, front=True, floor=0.1, floor_binds="unbiased attacks"),
    point("prune", 0.16, loss=0.02, front=True, rate=2.0),
    point("clip", 0.06, loss=0.03, front=False),
    point("sign", 0.3, loss=0.05, front=False, blind=True, answered=False),
    winners=(
        Winner(0.01, True, (Contender("", 0.99),)),
        Winner(0.1, False, (Contender("noise", 0.6), Contender("prune", 0.4))),
    ),
)
STRENGTHS = tradeoff(point("", 0.05), point("noise", 0.22), point("prune", 0.16), measure="")


def texts(figure: Drawing) -> list[str]:
    svg = base64.b64decode(figure.light.removeprefix("data:image/svg+xml;base64,"))
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(one.itertext()) for one in found]


def svg_of(figure: Drawing) -> str:
    return base64.b64decode(figure.light.removeprefix("data:image/svg+xml;base64,")).decode()


class TestLabels:
    @settings(deadline=None, max_examples=25)
    @given(st.integers(0, 10_000), st.integers(1, 20))
    def test_twenty_labels_keep_off_each_other_and_off_the_marks(
        self, seed: int, count: int
    ) -> None:
        rng = np.random.default_rng(seed)
        # As defences fall: most of them cheap and weak, a few dear and strong.
        at = np.column_stack([rng.beta(1, 4, count) * 480 + 50, rng.uniform(50, 310, count)])
        points = [(float(x), float(y)) for x, y in at]
        sizes = [(float(rng.uniform(20, 85)), 9.5) for _ in points]
        boxes = [label.box for label in placed(points, sizes, FRAME)]
        for one, other in combinations(boxes, 2):
            assert one.overlap(other) == 0
        for box, (width, height) in zip(boxes, sizes, strict=True):
            assert box.outside(FRAME) == pytest.approx(0, abs=1e-6)
            assert box.right - box.left == pytest.approx(width)
            assert box.top - box.bottom == pytest.approx(height)
            assert all(
                not (box.left < x < box.right and box.bottom < y < box.top) for x, y in points
            )

    def test_a_lonely_point_has_its_label_beside_it(self) -> None:
        (label,) = placed([(200.0, 200.0)], [(40.0, 10.0)], FRAME)
        assert not label.far
        assert (label.box.left, label.box.bottom) == pytest.approx((207, 195))

    def test_where_points_coincide_labels_get_a_line(self) -> None:
        labels = placed([(60.0, 300.0)] * 8, [(80.0, 10.0)] * 8, FRAME)
        assert any(label.far for label in labels)
        assert all(a.box.overlap(b.box) == 0 for a, b in combinations(labels, 2))


class TestFigure:
    def test_every_defence_the_front_and_the_floors_are_in_it(self) -> None:
        part = tradeoff_part(MEASURED)
        said = texts(part.figure)
        for name in ("no defence", "noise", "prune", "clip", "sign", "Pareto front"):
            assert name in said
        assert {"blind guess", "floor of the bound attacks", "rate of Liu et al."} <= set(said)
        assert "no attack finished" in said
        assert "accuracy lost (percentage points)" in said
        assert BOUND in svg_of(part.figure)

    def test_without_utility_it_is_strengths_alone(self) -> None:
        part = tradeoff_part(STRENGTHS)
        said = texts(part.figure)
        assert "error under the strongest attack" in said
        assert not {"Pareto front", "no attack finished"} & set(said)
        assert part.winners == ()
        assert "cost of the defences was not measured" in part.note

    @pytest.mark.parametrize("made", [MEASURED, STRENGTHS])
    def test_a_floor_beyond_all_errors_does_not_stretch_the_picture(self, made: Tradeoff) -> None:
        high = replace(made, points=(*made.points[:-1], replace(made.points[-1], floor=200.0)))
        if made.measure:
            high = replace(made, points=(replace(made.points[0], floor=200.0), *made.points[1:]))
        said = texts(tradeoff_part(high).figure)
        assert "floor of the bound attacks, beyond" in said
        assert not {"50", "100", "200"} & set(said)
        assert "floor of the bound attacks, beyond" not in texts(tradeoff_part(made).figure)

    def test_what_diverged_stands_at_the_edge(self) -> None:
        lost = UtilityLoss(math.inf, None, None, math.nan, 2)
        broken = replace(point("broken", 0.28), utility=lost, on_front=False)
        part = tradeoff_part(replace(MEASURED, points=(*MEASURED.points, broken)))
        assert "broken" in texts(part.figure)
        assert part.lines[-1].loss == "diverged"

    def test_the_same_numbers_give_the_same_bytes(self) -> None:
        assert tradeoff_part(MEASURED) == tradeoff_part(MEASURED)


class TestWords:
    def test_the_answer_names_the_strongest_defence_and_its_cost(self) -> None:
        assert answer(MEASURED) == (
            "Of 3 defences against which attacks ran, noise protects best: an error of 0.220 "
            "[0.210–0.230] under geiping, against 0.050 without a defence, at a cost of 10.0 [9.5 "
            "to 10.5] points of accuracy."
        )
        assert cautions(MEASURED) == (
            "Against sign no attack finished: that is no evidence of safety."
        )

    def test_what_can_not_be_told_apart_is_said(self) -> None:
        close = tradeoff(point("", 0.05), point("a", 0.22), point("b", 0.21), measure="")
        assert answer(close).endswith(
            "at a cost that was not measured; b is not distinguishable from it."
        )

    def test_several_that_leave_a_guess_are_told_by_their_cost(self) -> None:
        alike = tradeoff(
            point("", 0.05, loss=0.0),
            point("a", 0.3, loss=0.08, blind=True),
            point("b", 0.3, loss=0.04, blind=True),
        )
        said = answer(alike)
        assert "2 left attacks no better than a blind guess, an error of 0.300" in said
        assert "the cheapest is b, at a cost of 4.0 [3.5 to 4.5] points of accuracy." in said

    def test_no_defence_may_be_the_best(self) -> None:
        useless = tradeoff(point("", 0.2), point("a", 0.19), measure="")
        assert answer(useless) == (
            "Of 1 defence against which attacks ran, none protected better than no defence."
        )
        unknown = tradeoff(point("", 0.2), point("a", 0.3, answered=False), measure="")
        assert "is undecided" in answer(unknown)

    def test_winners_come_with_how_probable_they_are(self) -> None:
        first, second = tradeoff_part(MEASURED).winners
        assert (first.loss, first.sentence) == ("1 point of accuracy", "no defence protects best")
        assert second.sentence == "undecided between noise and prune"
        shares = [(name, share.replace("\u00a0", " ")) for name, share in second.contenders]
        assert shares == [("noise", "60 %"), ("prune", "40 %")]

    def test_the_table_has_all_that_is_drawn(self) -> None:
        lines = tradeoff_part(MEASURED).lines
        assert [line.defence for line in lines] == ["no defence", "noise", "prune", "clip", "sign"]
        assert lines[1].error == "0.220 [0.210–0.230]"
        assert lines[1].floor == "0.100"
        assert [line.on_front for line in lines] == [True, True, True, False, False]
        assert lines[4].attack == "none finished"
        assert not lines[4].known


class TestPalette:
    def test_few_colours_are_kept_exactly(self) -> None:
        rng = np.random.default_rng(0)
        image = rng.integers(0, 256, (COLOURS, 3), dtype=np.uint8)[
            rng.integers(0, COLOURS, (40, 9))
        ]
        places, palette = indexed(image)
        assert np.array_equal(palette[places], image)

    @pytest.mark.parametrize(("smooth", "most"), [(True, 2.5), (False, 12.0)])
    def test_many_come_close(self, smooth: bool, most: float) -> None:
        image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        if smooth:
            y, x = np.mgrid[:64, :64]
            image = np.stack([2 * x + y, 3 * y, 255 - x - y], axis=2).astype(np.uint8)
        places, palette = indexed(image)
        assert len(palette) == COLOURS
        assert np.abs(palette[places].astype(int) - image).mean() < most
