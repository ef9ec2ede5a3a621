"""Shadow models: the distribution of the training's result for each candidate."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from exhume.attacks.informed.membership.base import (
    MembershipAttack,
    MembershipJudge,
    MembershipQuestion,
    uninformed,
)
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Status
from exhume.protocol.release import Release, Weights
from exhume.shadows.release_vector import ReleaseVector
from exhume.stats.covariance import Discriminant, discriminant
from exhume.training.model import Model

_MOST_ASKED = 8
"""Number of candidates on which a shadow model is queried."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """Releases of ``k`` trainings with the challenge and ``k`` with an alternative, each (k, P).

    The i-th of both used the same random stream, so that its effects (initialisation, order, noise)
    mostly cancel in their difference.
    """

    layout: ReleaseVector
    challenge: list[Release]
    alternative: list[Release]


def train_shadows(
    mechanism: Mechanism,
    knowledge: Knowledge,
    candidates: MembershipQuestion,
    count: int,
    rng: np.random.Generator,
) -> Shadows:
    """Train ``count`` models with the challenge, ``count`` with an alternative drawn each time."""
    assert knowledge.fixed_set is not None
    fixed, others = knowledge.fixed_set, candidates.alternatives
    seeds = [int(seed) for seed in rng.integers(2**63, size=count)]
    drawn = rng.integers(1 if others is None else len(others), size=count)

    def streams() -> list[np.random.Generator]:
        return [np.random.default_rng(seed) for seed in seeds]

    challenge = candidates.challenge.take(np.zeros(count, dtype=np.intp))
    with_it = list(mechanism.publish_each(fixed, challenge, rngs=streams()))
    if others is None:
        without = [mechanism.publish(fixed, rng=stream) for stream in streams()]
    else:
        without = list(mechanism.publish_each(fixed, others.take(drawn), rngs=streams()))
    return Shadows(ReleaseVector.of(with_it[0]), with_it, without)


class ShadowTest(MembershipAttack):
    """A test that is fitted to ``models`` shadow models per candidate."""

    models: int
    fewest: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.models < self.fewest:
            raise InputError(
                f"models must be at least {self.fewest} per candidate, got {self.models}"
            )

    def accepts(self, knowledge: Knowledge, candidates: MembershipQuestion) -> str | None:
        """Require the training and the fixed set."""
        return uninformed(knowledge)

    @abstractmethod
    def _fitted(
        self, training: Mechanism, candidates: MembershipQuestion, shadows: Shadows
    ) -> MembershipJudge:
        """Return the judge that shadow models of either candidate teach."""

    @final
    def _prepare(
        self, knowledge: Knowledge, candidates: MembershipQuestion, rng: np.random.Generator
    ) -> MembershipJudge:
        training = knowledge.training
        assert training is not None
        shadows = train_shadows(training, knowledge, candidates, self.models, rng)
        return self._fitted(training, candidates, shadows)


@dataclass(frozen=True)
class NearestMean(ShadowTest):
    """Decides for the candidate whose shadow models' mean is nearer to the release.

    The direct reading of Balle et al. 2022, Algorithm 2: M trains ``models`` shadow models on each
    candidate and compares. The score is the log-likelihood ratio of two equal isotropic Gaussians
    around the means, with the mean width of the shadow models.
    """

    models: int = 16
    name: ClassVar[str] = "nearest-mean"

    def _fitted(
        self, training: Mechanism, candidates: MembershipQuestion, shadows: Shadows
    ) -> MembershipJudge:
        from exhume.attacks.informed.membership.retraining import Likelihood

        one, other = (
            shadows.layout.vectors(releases)
            for releases in (shadows.challenge, shadows.alternative)
        )
        means = one.mean(axis=0), other.mean(axis=0)
        spread = np.mean([np.square(one - means[0]).mean(), np.square(other - means[1]).mean()])
        variance = float(spread) * self.models / max(1, self.models - 1)
        return Likelihood(shadows.layout, means[0], means[1][None], float(np.sqrt(variance)))


@dataclass(frozen=True)
class ShadowModels(ShadowTest):
    """Decides by a likelihood ratio that was fitted to ``models`` shadow models per candidate.

    Two numbers are computed from a release. One is its projection on the direction that best
    separates the candidates' shadow models. If the release is a model, the other is the same of its
    scores on the candidates (the statistic of Balle et al. 2022, Figure 11). One half of the shadow
    models gives the directions, the other the Gaussians of the likelihood ratio. Then the halves
    are exchanged: no statistic is judged on the models that chose it.
    """

    models: int = 64
    fewest: ClassVar[int] = 8
    name: ClassVar[str] = "shadow-models"

    def _fitted(
        self, training: Mechanism, candidates: MembershipQuestion, shadows: Shadows
    ) -> MembershipJudge:
        views = _Views(shadows.layout, *_questions(training, candidates))
        challenge, alternative = views.each(shadows.challenge), views.each(shadows.alternative)
        halves = (np.arange(self.models) % 2 == 0, np.arange(self.models) % 2 == 1)
        fitted = tuple(
            _half(challenge, alternative, fit=halves[i], judge=halves[1 - i]) for i in (0, 1)
        )
        return _Ratio(views, fitted)


@dataclass(frozen=True, eq=False)
class _Views:
    """The vectors that represent a release."""

    layout: ReleaseVector
    model: Model | None
    questions: Array

    def each(self, releases: list[Release]) -> list[FloatArray]:
        """Return the vectors (k, size) of each view."""
        views = [self.layout.vectors(releases)]
        if self.model is not None:
            views.append(np.array([self._answers(self.model, release) for release in releases]))
        return views

    def _answers(self, model: Model, release: Release) -> FloatArray:
        assert isinstance(release, Weights)
        return model.scores(release, self.questions).ravel()


@dataclass(frozen=True, eq=False)
class _Half:
    """One direction per view, and the discriminant of the projections."""

    directions: tuple[Discriminant, ...]
    together: Discriminant

    def score(self, views: list[FloatArray]) -> FloatArray:
        """Return the log-likelihood ratio of each release."""
        return self.together.ratio(_projected(self.directions, views))


@dataclass(frozen=True, eq=False)
class _Ratio(MembershipJudge):
    views: _Views
    halves: tuple[_Half, ...]

    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        if self.views.layout.mismatch(release) is not None:
            return 0.0, Status.REFUSED
        views = self.views.each([release])
        if not all(np.isfinite(view).all() for view in views):
            return 0.0, Status.NO_INFORMATION
        return float(np.mean([half.score(views)[0] for half in self.halves])), Status.CONVERGED


def _half(
    challenge: list[FloatArray], alternative: list[FloatArray], *, fit: Array, judge: Array
) -> _Half:
    directions = tuple(
        discriminant(one[fit], other[fit])
        for one, other in zip(challenge, alternative, strict=True)
    )
    one, other = (
        _projected(directions, [view[judge] for view in views])
        for views in (challenge, alternative)
    )
    return _Half(directions, discriminant(one, other))


def _projected(directions: tuple[Discriminant, ...], views: list[FloatArray]) -> FloatArray:
    pairs = zip(directions, views, strict=True)
    return np.stack([direction.position(view) for direction, view in pairs], axis=1)


def _questions(mechanism: Mechanism, candidates: MembershipQuestion) -> tuple[Model | None, Array]:
    from exhume.protocol.defence import undefended

    model = undefended(mechanism)
    asked = candidates.records.x[:_MOST_ASKED]
    return (model, asked) if isinstance(model, Model) and model.answers else (None, asked)
