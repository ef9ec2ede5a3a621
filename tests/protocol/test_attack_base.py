"""What the base classes of attacks do once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import Attack, GroupedAttack, ParsedAttack, Refusal
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Gradient, Release, Weights

_X = np.arange(6.0).reshape(3, 2)


@dataclass(frozen=True)
class _Fixed(Attack):
    """Returns what it was told to."""

    samples: tuple[tuple[float, float], ...]
    status: Status = Status.CONVERGED
    name: ClassVar[str] = "fixed"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None if isinstance(release, Weights) else "weights only"

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        return Reconstruction(np.array(self.samples).reshape(-1, 2), self.status)


_WEIGHTS, _KNOWN = Weights({"w": _X}), Knowledge(record_shape=(2,))


def test_candidates_that_are_no_numbers_are_dropped() -> None:
    found = _Fixed(((1.0, float("nan")),)).reconstruct(_WEIGHTS, _KNOWN, rng=0)
    assert (found.status, len(found)) == (Status.NOT_CONVERGED, 0)


def test_candidates_are_put_into_the_known_range() -> None:
    known = replace(_KNOWN, value_range=(0.0, 1.0))
    found = _Fixed(((-3.0, 0.5), (0.2, 7.0))).reconstruct(_WEIGHTS, known, rng=0)
    assert found.samples.tolist() == [[0.0, 0.5], [0.2, 1.0]]
    assert _Fixed(()).reconstruct(_WEIGHTS, known, rng=0).samples.shape == (0, 2)


def test_each_keeps_its_place() -> None:
    """Broken and refused releases among good ones: every answer where its release was."""
    releases = [_WEIGHTS, Gradient({"w": _X}, 1), Weights({"w": np.array([np.nan])}), _WEIGHTS]
    found = _Fixed(((1.0, 2.0),)).reconstruct_each(
        releases, [_KNOWN] * 4, rngs=[np.random.default_rng(0)] * 4
    )
    assert [one.status for one in found] == [
        Status.CONVERGED,
        Status.REFUSED,
        Status.INVALID_RELEASE,
        Status.CONVERGED,
    ]
    assert found[1].message == "weights only"


def test_the_way_in_cannot_be_overridden_unseen() -> None:
    """`reconstruct` and `reconstruct_each` are final: checks can't be skipped by a method."""
    for name in ("reconstruct", "reconstruct_each"):
        assert getattr(getattr(Attack, name), "__final__", False)


# Attacks that read a release once


@dataclass(frozen=True)
class _Parsed(ParsedAttack[FloatArray]):
    """Answers with the first row of what was released, and counts its readings."""

    read: list[str] = field(default_factory=list)
    name: ClassVar[str] = "parsed"

    def parse(self, release: Release, knowledge: Knowledge) -> FloatArray | Refusal:
        self.read.append(type(release).__name__)
        return release.parameters["w"] if isinstance(release, Weights) else Refusal("weights only")

    def _solve(self, problem: FloatArray, rng: np.random.Generator) -> Reconstruction:
        return Reconstruction(problem[:1], Status.CONVERGED)


@dataclass(frozen=True)
class _Grouped(GroupedAttack[FloatArray]):
    """Answers with the sum of the first rows of a group; rows of one sign are a group."""

    name: ClassVar[str] = "grouped"

    def parse(self, release: Release, knowledge: Knowledge) -> FloatArray | Refusal:
        return release.parameters["w"] if isinstance(release, Weights) else Refusal("weights only")

    def _group_key(self, problem: FloatArray) -> bool:
        return bool(problem[0, 0] > 0)

    def _solve_group(
        self, problems: Sequence[FloatArray], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        assert len(problems) == len(rngs)
        total = np.sum([problem[:1] for problem in problems], axis=0)
        return [
            Reconstruction(total + rng.normal(), Status.CONVERGED, message=str(problem[0, 0]))
            for problem, rng in zip(problems, rngs, strict=True)
        ]


_MIXED = [
    Weights({"w": np.array([[1.0, 2.0]])}),
    Gradient({"w": _X}, 1),
    Weights({"w": np.array([[-1.0, 0.5]])}),
    Weights({"w": np.array([[np.nan, 0.0]])}),
    Weights({"w": np.array([[3.0, 4.0]])}),
]
_EACH = [Status.CONVERGED, Status.REFUSED, Status.CONVERGED, Status.INVALID_RELEASE]


def _streams() -> list[np.random.Generator]:
    return [np.random.default_rng(i) for i in range(len(_MIXED))]


def test_a_release_is_read_once() -> None:
    attack = _Parsed()
    found = attack.reconstruct_each(_MIXED, [_KNOWN] * len(_MIXED), rngs=_streams())
    assert attack.read == ["Weights", "Gradient", "Weights", "Weights"]
    assert [one.status for one in found] == [*_EACH, Status.CONVERGED]
    assert [one.samples.tolist() for one in found] == [[[1, 2]], [], [[-1, 0.5]], [], [[3, 4]]]
    assert found[1].message == attack.accepts(_MIXED[1], _KNOWN) == "weights only"
    assert attack.accepts(_MIXED[0], _KNOWN) is None


def test_a_group_is_solved_together_and_each_keeps_its_place() -> None:
    found = _Grouped().reconstruct_each(_MIXED, [_KNOWN] * len(_MIXED), rngs=_streams())
    assert [one.status for one in found] == [*_EACH, Status.CONVERGED]
    totals = {0: [[4.0, 6.0]], 2: [[-1.0, 0.5]], 4: [[4.0, 6.0]]}
    for i, total in totals.items():
        own = np.random.default_rng(i).normal()
        assert found[i].samples == pytest.approx(np.array(total) + own)
    assert [found[i].message for i in totals] == ["1.0", "-1.0", "3.0"]
    alone = _Grouped().reconstruct(_MIXED[0], _KNOWN, rng=0)
    assert alone.samples == pytest.approx(
        np.array([[1.0, 2.0]]) + np.random.default_rng(0).normal()
    )


def test_what_reads_a_release_cannot_be_gone_around() -> None:
    for name in ("accepts", "_reconstruct"):
        assert getattr(getattr(ParsedAttack, name), "__final__", False)
    for name in ("_solve", "_answer_each"):
        assert getattr(getattr(GroupedAttack, name), "__final__", False)
