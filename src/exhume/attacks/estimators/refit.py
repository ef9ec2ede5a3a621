"""Fits again with a candidate in the data, until the result equals the release."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from exhume.attacks.estimators.first_loss import epochs_of, first_loss
from exhume.attacks.estimators.held_unknowns import HeldUnknowns
from exhume.attacks.estimators.optimality import counted_record, optimal_record
from exhume.attacks.estimators.prior_mean import PriorMean
from exhume.attacks.estimators.refit_search import EXACT, SolvedRecord, search, size
from exhume.attacks.estimators.release_map import ReleaseMap
from exhume.attacks.estimators.revealed_levels import named, revealed_levels
from exhume.attacks.estimators.revealed_terms import revealed_terms
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import (
    GroupedAttack,
    Lacking,
    Refusal,
    ThreatModel,
    nothing,
    refused,
)
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights
from exhume.training.estimator import Estimator

_EXPLAINS = 10 * EXACT
"""A record with a smaller residual explains the release: no other class is tried."""
_AS_WELL = 3.0
"""A record explains a release as well as another up to this multiple of what it leaves."""
_CLOSE, _FAR = 0.05, 0.5
"""Error estimates in deviations of a column: certain up to the first, a guess above the second."""


@dataclass(frozen=True, eq=False)
class FittedRelease:
    """The released attributes of a fitted estimator, and what the adversary knows."""

    attributes: Mapping[str, Array]
    estimator: Estimator
    known: Records
    knowledge: Knowledge
    labelled: bool = True
    """Whether the estimator sees labels."""

    @property
    def rows(self) -> FloatArray:
        """The known records (n, features)."""
        return np.asarray(self.known.x, dtype=np.float64).reshape(len(self.known), -1)


def read_fitted(release: Release, knowledge: Knowledge) -> FittedRelease | Refusal:
    """Return a release of a fitted estimator whose other records are known, or what is missing."""
    if not isinstance(knowledge.training, Estimator):
        return Refusal("made for fitted scikit-learn estimators")
    if not isinstance(release, Weights):
        return Refusal("the release holds no fitted attributes")
    if knowledge.fixed_set is None or knowledge.fixed_set.y is None:
        return Refusal(
            Lacking("needs the other training records with labels", "knowledge.fixed_set")
        )
    features = [a for name, a in release.parameters.items() if name.endswith("n_features_in_")]
    width, schema = int(np.prod(knowledge.record_shape)), knowledge.training.schema
    width = width if schema is None else len(schema.columns)
    matching = any(array.size == 1 and array.item() == width for array in features)
    # Few estimators keep no width; all name what they fitted with a trailing underscore.
    if not matching and (features or not any("_." in f"{name}." for name in release.parameters)):
        return Refusal(f"the release holds no estimator that was fitted on {width} columns")
    return FittedRelease(release.parameters, knowledge.training, knowledge.fixed_set, knowledge)


@lru_cache(maxsize=16)
def _steps(estimator: Estimator, known: Records) -> tuple[Estimator, Records] | None:
    """Return a pipeline's steps before its last, and the records with codes for labels."""
    steps = getattr(estimator.template, "steps", ())
    if len(steps) < 2:
        return None
    codes = np.unique(known.labels, return_inverse=True)[1].astype(np.float64)
    return Estimator(estimator.template[:-1], estimator.frames), Records(known.x, codes)


def of_steps(problem: FittedRelease) -> FittedRelease | None:
    """Return what a pipeline's steps before its last release by themselves; None if there are none.

    Means, quantiles, extremes and categories depend on the record, whatever comes after them.
    """
    found = _steps(problem.estimator, problem.known)
    if found is None:
        return None
    steps, known = found
    count = len(steps.template.steps)
    own = tuple(f"steps.{place}." for place in range(count))
    attributes = {n: a for n, a in problem.attributes.items() if n.startswith(own)}
    return FittedRelease(attributes, steps, known, problem.knowledge, labelled=False)


def has_trees(attributes: Mapping[str, Array]) -> bool:
    """Tell whether a release holds decision trees."""
    return any(name.endswith(("tree_.threshold", "num_threshold")) for name in attributes)


@dataclass(frozen=True)
class Refit(GroupedAttack[FittedRelease]):
    """Repeats the training with candidates in place of the unknown record (Gauss–Newton).

    Fits to records like the known ones show which released numbers depend on a record, and how.
    From there, the candidate moves until its own fit agrees with the release. The attack needs no
    formula of the estimator. It only needs a training that can be repeated and is smooth in a
    record.
    """

    shadows: int = 20
    """The fits per class to records like the known ones, in addition to two per unknown."""
    fits: int = 600
    """At most about this many fits per target."""
    name: ClassVar[str] = "refit"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.ESTIMATOR

    def parse(self, release: Release, knowledge: Knowledge) -> FittedRelease | Refusal:
        """Return why the training can't be repeated, or None."""
        read = read_fitted(release, knowledge)
        if isinstance(read, FittedRelease) and has_trees(read.attributes):
            steps = of_steps(read)
            if steps is None:
                return Refusal("decision trees are not smooth in a record: use tree-cells")
            return steps
        return read

    def _group_key(self, problem: FittedRelease) -> Hashable:
        epochs = epochs_of(problem.estimator.final, problem.attributes)
        return id(problem.known), id(problem.estimator), epochs

    def _solve_group(
        self, problems: Sequence[FittedRelease], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        """Rebuild targets that share the fixed set, and therefore the fits to similar records."""
        known, estimator = problems[0].known, problems[0].estimator
        epochs = epochs_of(estimator.final, problems[0].attributes)
        estimator = estimator if epochs is None else _as_long(estimator, epochs)
        labels = np.unique(known.labels).tolist() if estimator.classifies else [None]
        maps = [ReleaseMap(estimator, known, label) for label in labels]
        for place, map_ in enumerate(maps):
            # All targets share these fits: their draws must not depend on which target comes first.
            map_.learn(self.shadows + 2 * map_.unknowns, np.random.default_rng(place))
        if not all(map_.repeatable for map_ in maps):
            steps = [of_steps(problem) for problem in problems]
            if problems[0].labelled and steps[0] is not None:
                return self._solve_group([one for one in steps if one is not None], rngs)
        with np.errstate(all="ignore"):
            return [self._answer(maps, problem) for problem in problems]

    def _answer(self, maps: Sequence[ReleaseMap], problem: FittedRelease) -> Reconstruction:
        """Rebuild one target; one with a level of its own needs fits with this level."""
        texts, own = revealed_terms(problem), revealed_levels(problem)
        schema = problem.estimator.schema
        if schema is not None:
            own += [level for one in texts for level in one.levels(schema)]
        held = tuple(level.entries(problem.estimator) for level in own)
        first = first_loss(problem)
        if first is not None:
            one = maps[0]
            maps = [
                ReleaseMap(one.estimator, one.fixed_set, response=side, held=held)
                for side in first.responses()
            ]
        elif own:
            maps = [replace(map_, held=held) for map_ in maps]
        if own or first is not None:
            rng = np.random.default_rng(0)
            for map_ in maps:
                map_.learn(self.shadows + 2 * map_.unknowns, rng)
        terms = [term for one in texts for term in one.terms]
        return named(_solved(maps, problem, self.fits), own, terms)


def _as_long(estimator: Estimator, epochs: int) -> Estimator:
    """Return an estimator whose network is trained for exactly so many epochs."""
    from sklearn.base import clone

    template = clone(estimator.template)
    final = template.steps[-1][1] if hasattr(template, "steps") else template
    final.set_params(max_iter=epochs, n_iter_no_change=np.inf)
    return Estimator(template, estimator.frames)


def _solved(maps: Sequence[ReleaseMap], problem: FittedRelease, fits: int) -> Reconstruction:
    knowledge = problem.knowledge
    if not all(map_.repeatable for map_ in maps):
        why = f"{problem.estimator.describe()}, fitted twice to the same records, gives two results"
        return refused(knowledge, Lacking(why, "a fixed random_state to the estimator"))
    able = [map_ for map_ in maps if map_.shadows]
    # What all records of a class share tells classes apart; it says nothing of a single class.
    able = [map_ for map_ in able if not map_.contradicts(problem.attributes)] or able
    if knowledge.labels is not None and problem.estimator.classifies:
        able = [map_ for map_ in able if map_.label == knowledge.labels[0]]
    found: list[tuple[ReleaseMap, SolvedRecord]] = []
    counted = counted_record(problem)
    if counted is not None:
        return _counted(counted, knowledge)
    start = optimal_record(problem)
    for map_ in sorted(able, key=lambda one: _apart(one, problem.attributes)):
        target = map_.read(problem.attributes)
        given = [] if start is None else [map_.unknowns_of(*start)]
        one = None if target is None else _searched(map_, target, problem, fits, given)
        if one is not None:
            found.append((map_, one))
        if one is not None and one.residual < _EXPLAINS:
            break
    if not found:
        why = "no released number depends on a record in a way that fits to other records show"
        return nothing(knowledge, Status.NO_INFORMATION, why)
    map_, best = min(found, key=lambda pair: pair[1].residual)
    target = map_.read(problem.attributes)
    assert target is not None
    told = _told(map_, target, best, knowledge)
    return told if problem.labelled else replace(told, labels=None)


def _counted(found: tuple[FloatArray, object], knowledge: Knowledge) -> Reconstruction:
    """Return a record that sums show exactly."""
    x, label = found
    return Reconstruction(
        x.reshape(1, *knowledge.record_shape),
        Status.CONVERGED,
        labels=np.asarray([label]),
        confidence=np.ones(1),
        error_estimate=np.zeros(1),
        message="the counts less those of the known records are the record's own",
        stats={"columns found": len(x)},
    )


def _apart(map_: ReleaseMap, attributes: Mapping[str, Array]) -> float:
    """Return how far a release is from the nearest of a class's shadows."""
    target = map_.read(attributes)
    if target is None:
        return np.inf
    return min(float(np.linalg.norm(one.release - target)) for one in map_.shadows)


def _searched(
    map_: ReleaseMap,
    target: FloatArray,
    problem: FittedRelease,
    fits: int,
    given: Sequence[FloatArray],
) -> SolvedRecord | None:
    """Search for the record, from ``given`` starts too, with what is known of it held."""
    known = problem.knowledge.known_attributes
    held = dict(pair for level in map_.held for pair in level)
    if known is not None:
        values = known.values.reshape(-1)
        held |= {int(place): float(values[place]) for place in np.flatnonzero(known.mask)}
    if not held:
        return search(map_, target, fits=fits, given=given)
    places = np.array(sorted(held))
    values = (np.array([held[one] for one in places]) - map_.centre[places]) / map_.unit[places]
    return search(HeldUnknowns(map_, places, values), target, fits=fits, given=given)


def _explaining(
    map_: ReleaseMap, target: FloatArray, found: SolvedRecord, likelier: FloatArray
) -> FloatArray:
    """Return the likelier record if it explains the release as well, or as much of it as does.

    Where a release jumps, its slopes do not say what would be lost.
    """
    limit = max(_AS_WELL * found.residual, _AS_WELL * found.noise, _EXPLAINS)

    def explains(unknowns: FloatArray) -> bool:
        release = map_(unknowns)
        return release is not None and size(release - target) <= limit

    if found.residual < _EXPLAINS and np.allclose(likelier, found.unknowns, rtol=0, atol=1e-6):
        return found.unknowns
    if explains(likelier):
        return likelier
    now = found.unknowns
    for place in np.flatnonzero(likelier != found.unknowns):
        tried = now.copy()
        tried[place] = likelier[place]
        now = tried if explains(tried) else now
    return now


def _told(
    map_: ReleaseMap, target: FloatArray, best: SolvedRecord, knowledge: Knowledge
) -> Reconstruction:
    """Return what a search found, with the records that explain the release as well."""
    filled, errors = PriorMean.of(map_.standard()).filled(best)
    best = replace(best, unknowns=_explaining(map_, target, best, filled.unknowns))
    own = np.where(map_.hidden(best.unknowns), 0.0, errors)[: map_.rows.shape[1]]
    error = float(np.sqrt(np.mean(own**2)))
    status = Status.APPROXIMATE if error <= _FAR else Status.NOT_CONVERGED
    if error <= _CLOSE:
        status = Status.CONVERGED
    records = [map_.record(one) for one in (best.unknowns, *best.alike)]
    count = len(records)
    return Reconstruction(
        np.stack([map_.rounded(x) for x, _ in records]).reshape(count, *knowledge.record_shape),
        status,
        labels=np.asarray([label for _, label in records]),
        confidence=np.full(count, float(np.mean(own <= _CLOSE)) / count),
        error_estimate=np.full(count, float(np.sqrt(np.mean((own * map_.unit) ** 2)))),
        message="" if count == 1 else f"{count} records explain the release equally well",
        stats={
            "residual": best.residual,
            "noise": best.noise,
            "columns found": int(np.sum(own <= _CLOSE)),
        },
    )
