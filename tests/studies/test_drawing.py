"""Declared figures: drawn from a run's stored figures, the same bytes each time."""

from __future__ import annotations

import pytest
from tests.studies.summaries import made

from exhume.studies import StudyReading
from exhume.studies.drawing import draw_plots, painted
from exhume.studies.plots import (
    Cloud,
    HeatMaps,
    HeatPanel,
    Histogram,
    Lines,
    Plane,
    PlotLine,
    of_attacks,
)

RUN = made(
    spread=0.005,
    a={"oracle": 0.1, "reconstructor": 0.2, "ridge": 0.12, "utility": 0.9},
    b={"oracle": 0.1, "reconstructor": 0.05, "ridge": 0.03, "utility": 0.7},
)
BOTH = ((1.0, "a"), (10.0, "b"))
ORACLE = PlotLine("oracle", tuple((x, StudyReading("oracle", s)) for x, s in BOTH), dashed=True)
PLOTS = {
    "lines": Lines(
        *("lines", "falls", "shadow models", "squared error"),
        (*of_attacks((("reconstructor", "φ"), ("ridge", "ridge")), BOTH, "mse.mean"), ORACLE),
        log_x=True,
        log_y=True,
    ),
    "cloud": Cloud(
        *("cloud", "apart", "x", "y", "a"), (("ridge", "ridge"),), ("mse", "mse"), log_x=True
    ),
    "histogram": Histogram("histogram", "wide", "squared error", "mse", (("φ", "b", "ridge"),)),
    "heat": HeatMaps(
        *("heat", "warm"),
        (
            HeatPanel(
                *("ridge", ("λ = 0", "λ = 1"), ("one",)),
                tuple((StudyReading("mse.mean", s, "ridge"),) for s in "ab"),
            ),
        ),
    ),
    "plane": Plane(
        *("plane", "trade", "utility", "error"),
        tuple(
            (f"setting {s}", StudyReading("utility", s), StudyReading("mse.mean", s, "ridge"))
            for s in "ab"
        ),
    ),
}
TEXTS = {
    "lines": ("shadow models", "squared error", "φ", "oracle"),
    "cloud": ("ridge",),
    "histogram": ("targets", "squared error"),
    "heat": ("λ = 1", ".120", ".0300"),
    "plane": ("setting a", "setting b", "utility"),
}


@pytest.mark.parametrize("name", PLOTS)
def test_it_shows_what_was_declared_and_the_same_each_time(name):
    drawn = painted(PLOTS[name], RUN)
    assert drawn is not None
    for text in TEXTS[name]:
        assert text in drawn
    assert drawn == painted(PLOTS[name], RUN)


@pytest.mark.parametrize("name", PLOTS)
def test_another_figure_is_another_drawing(name):
    other = made(
        spread=0.005,
        a={"oracle": 0.1, "reconstructor": 0.2, "ridge": 0.11, "utility": 0.8},
        b={"oracle": 0.1, "reconstructor": 0.05, "ridge": 0.021, "utility": 0.7},
    )
    if name in ("lines", "heat", "plane"):
        assert painted(PLOTS[name], other) != painted(PLOTS[name], RUN)
    assert painted(PLOTS[name], made(c={"oracle": 0.1})) is None


def test_only_what_can_be_drawn_is_written(tmp_path):
    assert draw_plots(made(c={"oracle": 0.1}), list(PLOTS.values()), tmp_path) == []
    written = draw_plots(RUN, list(PLOTS.values()), tmp_path / "figures")
    assert [path.name for path in written] == [f"paper-part-{name}.svg" for name in PLOTS]
