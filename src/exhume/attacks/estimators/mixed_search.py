"""Levels of categories by beam search under a linear model of the release, numbers by descent."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exhume.attacks.estimators.refit_search import (
    EXACT,
    Searched,
    SolvedRecord,
    descend,
    size,
    slopes_at,
)
from exhume.attacks.estimators.release_map import UnknownChoice
from exhume.protocol.arrays import FloatArray

_ROUNDS = 8
_BEAM = 64
_TRIED = 4
_ALIKE = 3.0
"""Levels explain the release as well as others if the residual is at most so many times larger."""
_MOST_ALIKE = 16
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Flip:
    """Another value of a choice, and the change of the release that it makes."""

    choice: int
    option: int
    effect: FloatArray


@dataclass(frozen=True, eq=False)
class LocalModel:
    """The release near a record, as linear in its numbers and additive in its levels."""

    rest: FloatArray
    slopes: FloatArray
    flips: tuple[Flip, ...]

    def step(self, chosen: tuple[int, ...]) -> FloatArray:
        """Return the change of the numbers that goes best with some flips."""
        rest = self.rest + sum((self.flips[i].effect for i in chosen), np.zeros_like(self.rest))
        normal = self.slopes.T @ self.slopes
        normal[np.diag_indices(len(normal))] += _RIDGE * max(np.trace(normal), 1e-300)
        return np.asarray(-np.linalg.solve(normal, self.slopes.T @ rest))

    def gram(self) -> FloatArray:
        """Return inner products of the rest and the effects, after the numbers' best changes."""
        columns = np.column_stack([self.rest, *(flip.effect for flip in self.flips)])
        if not self.slopes.shape[1]:
            return np.asarray(columns.T @ columns)
        basis, sizes, _ = np.linalg.svd(self.slopes, full_matrices=False)
        weak = _RIDGE * max(float(np.sum(sizes**2)), 1e-300)
        inside = basis.T @ columns
        gram = columns.T @ columns - inside.T @ ((sizes**2 / (sizes**2 + weak))[:, None] * inside)
        return np.asarray(gram)


def descend_mixed(
    map_: Searched, target: FloatArray, start: SolvedRecord, last: int
) -> SolvedRecord:
    """Return the record found by turns of flips of levels and descents of numbers."""
    best = descend(map_, target, start, last)
    for _ in range(_ROUNDS):
        if best.residual < max(EXACT, 3.0 * map_.noise) or map_.fits > last:
            break
        model = local_model(map_, target, best)
        if model is None:
            break
        better = _flipped(map_, target, best, model, last)
        if better is None or better.residual > 0.99 * best.residual:
            break
        best = better
    return best


def local_model(map_: Searched, target: FloatArray, at: SolvedRecord) -> LocalModel | None:
    """Return the linear model at a record: a fit per number and per other level."""
    release = map_(at.unknowns)
    if release is None:
        return None
    rest = release - target
    slopes = slopes_at(map_, at.unknowns, rest, target, map_.noise)
    if slopes is None:
        return None
    flips = []
    for place, choice in enumerate(map_.choices):
        now = current(choice, at.unknowns)
        for option in range(len(choice.options)):
            moved = None if option == now else map_(with_option(choice, option, at.unknowns))
            if moved is not None:
                flips.append(Flip(place, option, moved - release))
    return LocalModel(rest, slopes, tuple(flips))


def current(choice: UnknownChoice, unknowns: FloatArray) -> int:
    """Return which option of a choice a record has."""
    apart = choice.options - unknowns[list(choice.places)]
    return int(np.argmin(np.sum(apart**2, axis=1)))


def with_option(choice: UnknownChoice, option: int, unknowns: FloatArray) -> FloatArray:
    """Return a record with another option of a choice."""
    moved = unknowns.copy()
    moved[list(choice.places)] = choice.options[option]
    return moved


def combinations(model: LocalModel) -> list[tuple[tuple[int, ...], float]]:
    """Return sets of flips, at most one per choice, with the squared rest that they leave.

    The best come first. A beam search over the choices, those with the largest effects first.
    """
    gram = model.gram()
    effects: dict[int, list[int]] = {}
    for place, flip in enumerate(model.flips):
        effects.setdefault(flip.choice, []).append(place)
    order = sorted(effects.values(), key=lambda own: -max(gram[i + 1, i + 1] for i in own))
    beam: list[tuple[tuple[int, ...], float]] = [((), float(gram[0, 0]))]
    for own in order:
        grown = list(beam)
        for chosen, rest in beam:
            places = [0, *(i + 1 for i in chosen)]
            for one in own:
                change = gram[one + 1, one + 1] + 2.0 * float(gram[one + 1, places].sum())
                grown.append(((*chosen, one), rest + change))
        beam = sorted(grown, key=lambda pair: pair[1])[:_BEAM]
    return beam


def _flipped(
    map_: Searched, target: FloatArray, at: SolvedRecord, model: LocalModel, last: int
) -> SolvedRecord | None:
    """Return the best record among some sets of flips, each really fitted."""
    found: list[SolvedRecord] = []
    for chosen, _ in combinations(model)[:_TRIED]:
        moved = _applied(map_, model, chosen, at.unknowns)
        release = map_(moved)
        if release is not None:
            found.append(SolvedRecord(moved, size(release - target), free=map_.free))
    if not found:
        return None
    return descend(map_, target, min(found, key=lambda one: one.residual), last)


def _applied(
    map_: Searched, model: LocalModel, chosen: tuple[int, ...], unknowns: FloatArray
) -> FloatArray:
    moved = unknowns.copy()
    for place in chosen:
        flip = model.flips[place]
        moved = with_option(map_.choices[flip.choice], flip.option, moved)
    step = model.step(chosen)
    length = float(np.linalg.norm(step))
    moved[map_.free] += step * min(1.0, 3.0 / max(length, 1e-300))
    return moved


def with_alternatives(map_: Searched, target: FloatArray, best: SolvedRecord) -> SolvedRecord:
    """Return the record with the others that explain the release as well, by their levels."""
    model = local_model(map_, target, best) if map_.choices else None
    if model is None:
        return best
    limit = max(_ALIKE * best.residual, _ALIKE * map_.noise, 1e-6)
    alike = []
    for chosen, rest in combinations(model):
        if not chosen or rest > len(model.rest) * (2.0 * limit) ** 2:
            continue
        moved = _applied(map_, model, chosen, best.unknowns)
        release = map_(moved)
        if release is not None and size(release - target) <= limit:
            alike.append(moved)
        if len(alike) >= _MOST_ALIKE:
            break
    # A number that equals what an imputer puts in place of a missing one was missing.
    first, *others = sorted([best.unknowns, *alike], key=lambda one: -map_.missing(one))
    return replace(best, unknowns=first, alike=tuple(others))
