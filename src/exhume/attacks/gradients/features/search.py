"""The search for a batch: fits from several starts, with residuals held fixed and free."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exhume.attacks.gradients.features.first_order import HeadRegression, class_starts, scattered
from exhume.attacks.gradients.features.fit import (
    Consistent,
    FeatureFit,
    Free,
    Held,
    error_estimates,
    polish,
)
from exhume.attacks.gradients.features.head import Head, ResponseKind
from exhume.attacks.gradients.features.masked_gradient import MaskedGradient
from exhume.attacks.gradients.features.tensor_method import tensor_features
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError

EXACT = 1e-9
"""A relative loss below this is an exact fit: float32 gradients leave about 1e-14."""
CONTRADICTED = 0.5
"""A loss with free residuals below this share of the consistent one contradicts the assumptions."""
LARGEST_TENSOR = 24
"""The largest batch whose moments are decomposed: they have K·B³ numbers."""
_PART = 0.6
SAME = 0.98
"""Two fits agree only if each feature has a partner with at least this cosine."""


@dataclass(frozen=True, kw_only=True)
class FeatureSearchSettings:
    """Effort of the search: at most ``restarts`` starts, ``iterations`` of L-BFGS per fit.

    A fit begins with ``anchor_rounds`` of ``anchor_iterations`` with fixed residuals. From the
    third start on, ``shakes`` of ``short`` iterations on random subsets of the units follow. As
    many iterations compare guesses of the labels. The search ends when a start explains the
    gradient exactly, or when the two best starts found the same features.
    """

    restarts: int = 6
    iterations: int = 400
    anchor_rounds: int = 3
    anchor_iterations: int = 100
    short: int = 40
    shakes: int = 12

    def __post_init__(self) -> None:
        for name in (
            "restarts",
            "iterations",
            "anchor_rounds",
            "anchor_iterations",
            "short",
            "shakes",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class FeatureSearch:
    """One batch: the standardised head, the scaled gradient, and the known labels.

    ``unit`` is the batch size times the gradient's unit, by which residuals are divided.
    """

    head: Head
    observed: MaskedGradient
    count: int
    unit: float
    labels: Array | None
    settings: FeatureSearchSettings
    rng: np.random.Generator
    guessed: bool = False

    def run(self, order: HeadRegression) -> tuple[FeatureFit, int, bool]:
        """Fit from each start in turn; return the best fit, the starts, and whether it is sure."""
        search, fits = self, list[FeatureFit]()
        for number in range(self.settings.restarts):
            shakes = self.settings.shakes if number > 1 else 0
            fits.append(search.fit(search.start(order, number), shakes=shakes))
            fits.sort(key=lambda fit: fit.loss)
            if fits[0].loss < EXACT:
                return fits[0], number + 1, True
            if number and self.agree(fits[0], fits[1]):
                return fits[0], number + 1, True
            search = search.relabelled(fits[0])
        return fits[0], len(fits), False

    def agree(self, one: FeatureFit, other: FeatureFit) -> bool:
        """Whether two fits found the same directions, within the estimated error.

        Neighbouring corners of a ReLU are similar too, but their distance exceeds the noise.
        """
        from scipy.optimize import linear_sum_assignment

        norms = [np.maximum(np.linalg.norm(f.features, axis=1), 1e-300) for f in (one, other)]
        first, second = one.features / norms[0][:, None], other.features / norms[1][:, None]
        cosines = first @ second.T
        rows, columns = linear_sum_assignment(-cosines)
        errors = error_estimates(self.head, self.observed, one) / norms[0]
        allowed = np.sqrt(self.head.dimension) * errors + 1e-6
        apart = np.linalg.norm(first[rows] - second[columns], axis=1)
        return bool((cosines[rows, columns] > SAME).all() and (apart <= allowed).all())

    def start(self, order: HeadRegression, number: int) -> FloatArray:
        """Return a start (B, d): each class's mean to first order, or the tensor method's."""
        if self.head.response is ResponseKind.CLASSES:
            assert self.labels is not None
            starts = class_starts(self.head, order, self.labels, self.unit)
            alone = len(np.unique(self.labels)) == self.count
            return starts if number == 0 and alone else scattered(starts, 0.5, self.rng)
        if self.count <= min(self.head.dimension, LARGEST_TENSOR):
            found = tensor_features(self.head, self.observed.gradient, self.count, rng=self.rng)
            starts = found.features
        else:
            starts = np.repeat(order.slopes[:, :1].T, self.count, axis=0)
            starts = starts / max(float(np.linalg.norm(starts[0])), 1e-300)
        if number == 0 and self.count <= LARGEST_TENSOR:
            return starts
        signs = self.rng.choice([-1.0, 1.0], (self.count, 1))
        return signs * scattered(starts, 0.5, self.rng)

    def fit(self, start: FloatArray, *, shakes: int = 0) -> FeatureFit:
        """Fit with fixed residuals from the labels, then with the head's own or with free ones."""
        features, evaluations = start, 0
        limit, known = self.settings.iterations, self.consistent()
        best: FeatureFit | None = None
        if known is not None:
            for _ in range(self.settings.anchor_rounds):
                held = Held(known.at(self.head.hidden(features)[0]))
                anchor = self.settings.anchor_iterations
                fit = polish(self.head, self.observed, features, held, iterations=anchor)
                features, evaluations = fit.features, evaluations + fit.evaluations
            features = self.shaken(features, known, shakes)
            if self.head.output is not None:
                best = polish(self.head, self.observed, features, known, iterations=limit)
                features, evaluations = best.features, evaluations + best.evaluations
        if best is None or best.loss > EXACT:
            fit = polish(self.head, self.observed, features, Free(self.observed), iterations=limit)
            evaluations += fit.evaluations
            best = fit if best is None or fit.loss < CONTRADICTED * best.loss else best
        return replace(best, evaluations=evaluations)

    def shaken(self, features: FloatArray, known: Consistent, shakes: int) -> FloatArray:
        """Fit to one random subset of the hidden units at a time.

        A corner of ReLUs that traps the fit to one subset does not exist in the next subset. Only
        the true batch fits all subsets.
        """
        for _ in range(shakes):
            rows = self.rng.random(len(self.head.weights)) < _PART
            held = Held(known.at(self.head.hidden(features)[0]))
            part, seen = self.head.part(rows), self.observed.part(rows)
            features = polish(part, seen, features, held, iterations=self.settings.short).features
        return features

    def consistent(self) -> Consistent | None:
        """Return the head's residuals for these labels, or None without labels."""
        if self.labels is None or self.head.response is ResponseKind.NUMBERS:
            return None
        outputs = self.observed.gradient.shape[1]
        return Consistent(self.head, self.labels, outputs, self.unit)

    def with_best_labels(self, order: HeadRegression, guesses: list[Array]) -> FeatureSearch:
        """Return the search with the guess that has the best short fit."""
        tried = [replace(self, labels=guess, guessed=True) for guess in guesses]
        return min(tried, key=lambda search: search.short_fit(order).loss)

    def short_fit(self, order: HeadRegression) -> FeatureFit:
        """Fit briefly, with fixed residuals."""
        known = self.consistent()
        assert known is not None
        start = self.start(order, 0)
        held = Held(known.at(self.head.hidden(start)[0]))
        return polish(self.head, self.observed, start, held, iterations=self.settings.short)

    def relabelled(self, fit: FeatureFit) -> FeatureSearch:
        """Replace guessed labels by those that the fit's residuals show."""
        return replace(self, labels=fit.residuals.argmin(axis=1)) if self.guessed else self
