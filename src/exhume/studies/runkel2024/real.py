"""Sections 4.3 and 5: whether an image that came out can be told from an invention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Size, Tables
from exhume.studies.claims import Claim, Row
from exhume.studies.run import Reading
from exhume.studies.runkel2024.common import (
    FULL,
    LAPTOP,
    PAPER,
    SMOKE,
    WeightsSize,
    alone,
    hidden,
    minutes,
    sizes,
)


def _settings(size: Size) -> Sequence[Tables]:
    assert isinstance(size, WeightsSize)
    options = {"steps": size.steps, "restarts": size.restarts, "draws": 300}
    return [alone(size, "weights alone", hidden(size), None, options={"kkt": options})]


def _area(which: str) -> Reading:
    return Reading(f"authenticity.{which}.area", "weights alone")


def _rows(size: Size) -> Sequence[Row]:
    says = "no better than a coin, as the paper has it"
    candidates = Claim(_area("measured"), "below", 0.6, says, attacks=("",))
    images = Claim(_area("held_out"), "below", 0.6, says, attacks=("",))
    return [
        Row("candidates: area under the ROC", "can't be told", _area("measured"), candidates),
        Row("given images: area under the ROC", "can't be told", _area("held_out"), images),
    ]


AUTHENTICITY = Part(
    paper=PAPER,
    name="authenticity",
    reference="sections 4.3, 4.4 and 5",
    title="can a real one be told from an invention?",
    sizes=sizes(
        replace(FULL, shadow_targets=8000, authenticity=10),
        replace(LAPTOP, steps=300, releases=4, authenticity=6),
        replace(SMOKE, steps=60, releases=3, authenticity=3, shadow_targets=120),
    ),
    minutes=minutes("months", "5 min"),
    settings=_settings,
    rows=_rows,
    attacks=("kkt",),
    metrics=("ncc",),
    note=(
        "The adversary trains networks on images of its own, attacks them, and learns there which "
        "candidates to believe; then it judges those of the release. 1 is told apart without "
        "error, .5 a coin."
    ),
)
