"""What a fitted estimator's attributes say about one record, learned from fits to similar ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.schema import ColumnKind, Schema
from exhume.training.estimator import Estimator

_NUDGE, _NUDGED = 1e-3, 3
_FINE_NUDGE, _FINELY_NUDGED = 1e-6, 1
_LEAST = 1e-8
"""A direction is ignored if shadow releases differ in it by less than this share of the most."""

_NEARLY = 0.1
"""An integer that came out closer than this to a whole number is that number."""
_TRIED = 4
"""After this many fits, an estimator is given up if its numbers do not depend on a record."""
_SAME = 1e-12
_SMOOTH = 1e-6
"""The least share of a number's variance that counts as unexplained by a linear function."""
_STILL = {"n_iter_", "t_"}
"""Counts of a solver's steps: they jump, and say nothing about a record beyond the result."""


@dataclass(frozen=True, eq=False)
class Shadow:
    """One record (unknowns,) in standard units, and its release (directions,)."""

    unknowns: FloatArray
    release: FloatArray


@dataclass(eq=False)
class ReleaseMap:
    """Maps a record of one class, or with its response, to the release of a fit with it.

    Records are in units of the fixed set: mean 0, deviation 1. A regression's response is the last
    unknown. Releases are in the directions in which those of the ``shadows`` differ, in units of
    these differences. ``noise`` is the deviation of a fit's random part in the same units (root
    mean square over directions), ``fine`` the same over the shortest steps: an unfinished solver
    jumps between smooth pieces.
    """

    estimator: Estimator
    fixed_set: Records
    label: object | None = None
    """The class of the records; None in a regression."""
    response: Callable[[FloatArray], float] | None = None
    """A regression's response where the record (features,) determines it."""
    held: tuple[tuple[tuple[int, float], ...], ...] = ()
    """Entries of a record with their values that are known already: (entry, value) per column."""
    shadows: tuple[Shadow, ...] = ()
    noise: float = 0.0
    fine: float = 0.0
    fits: int = 0
    repeatable: bool = True
    """Whether two fits to the same records gave the same result."""
    _names: tuple[str, ...] = ()
    _shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _kept: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))
    _mean: FloatArray = field(default_factory=lambda: np.zeros(0))
    _scale: FloatArray = field(default_factory=lambda: np.zeros(0))
    _still: FloatArray = field(default_factory=lambda: np.zeros(0))
    _directions: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        x = np.asarray(self.fixed_set.x, dtype=np.float64).reshape(len(self.fixed_set), -1)
        self.rows = x
        self.centre, self.unit = x.mean(axis=0), x.std(axis=0)
        self.unit[self.unit == 0] = 1.0
        schema = self.estimator.schema
        self.choices = () if schema is None else choices_of(schema, self.centre, self.unit)
        self.middle, self.spread = 0.0, 1.0
        if self.searches_response:
            responses = np.asarray(self.fixed_set.labels, dtype=np.float64)
            self.middle, self.spread = float(responses.mean()), float(responses.std()) or 1.0

    @property
    def searches_response(self) -> bool:
        """Whether the last unknown is a regression's response."""
        return self.label is None and self.response is None

    @property
    def unknowns(self) -> int:
        """The number of unknowns: a record's entries, and a regression's response."""
        return self.rows.shape[1] + self.searches_response

    @property
    def free(self) -> Array:
        """The unknowns that lie on a line; the others have one of a few values each."""
        fixed = [place for choice in self.choices for place in choice.places]
        return np.setdiff1d(np.arange(self.unknowns), fixed)

    def start(self, unknowns: FloatArray) -> FloatArray:
        """Return the nearest record that the table can hold: each choice has one of its options."""
        moved = unknowns.copy()
        for choice in self.choices:
            places = list(choice.places)
            apart = np.sum((choice.options - unknowns[places]) ** 2, axis=1)
            moved[places] = choice.options[int(np.argmin(apart))]
        return moved

    def standard(self) -> FloatArray:
        """Return the known records of the class in standard units (n, unknowns)."""
        rows = (self.rows - self.centre) / self.unit
        if self.label is not None:
            return np.asarray(rows[self.fixed_set.labels == self.label])
        if self.response is not None:
            return np.asarray(rows)
        responses = (np.asarray(self.fixed_set.labels, np.float64) - self.middle) / self.spread
        return np.column_stack([rows, responses])

    def record(self, unknowns: FloatArray) -> tuple[FloatArray, object]:
        """Return the record (features,) in its own units, and its label."""
        features = self.rows.shape[1]
        x = self.centre + unknowns[:features] * self.unit
        if self.estimator.schema is not None:
            x = self.estimator.schema.snap(x[None])[0]
        if self.label is not None:
            return x, self.label
        if self.response is not None:
            return x, self.response(x)
        return x, float(self.middle + unknowns[features] * self.spread)

    def unknowns_of(self, x: FloatArray, label: object) -> FloatArray:
        """Return a record (features,) in standard units, with its response if that is unknown."""
        standard = (x - self.centre) / self.unit
        if not self.searches_response:
            return np.asarray(standard)
        return np.append(standard, (float(str(label)) - self.middle) / self.spread)

    def hidden(self, unknowns: FloatArray) -> Array:
        """Return which unknowns a record does not have: the numbers of missing cells."""
        hidden, schema = np.zeros(self.unknowns, dtype=bool), self.estimator.schema
        for column, place in (
            () if schema is None else zip(schema.columns, schema.places, strict=True)
        ):
            if column.kind.numeric and column.missing:
                last = place.stop - 1
                absent = self.centre[last] + unknowns[last] * self.unit[last] > 0.5
                hidden[place.start] = absent
        return hidden

    def missing(self, unknowns: FloatArray) -> int:
        """Return how many numbers of a record are missing."""
        return int(self.hidden(unknowns).sum())

    def rounded(self, x: FloatArray) -> FloatArray:
        """Return a record with its integers rounded, where they are nearly whole."""
        schema = self.estimator.schema
        if schema is None:
            return x
        x = x.copy()
        for column, place in zip(schema.columns, schema.places, strict=True):
            whole = round(float(x[place.start]))
            if column.kind is ColumnKind.INTEGER and abs(whole - x[place.start]) < _NEARLY:
                x[place.start] = whole
        return x

    def _state(self, unknowns: FloatArray) -> Mapping[str, Array] | None:
        """Return the release with this record, or None if the estimator can't be fitted to it."""
        self.fits += 1
        x, y = self.record(unknowns)
        own = Records(x[None], np.asarray([y]))
        try:
            release = self.estimator.publish(
                self.fixed_set.with_record(own), rng=np.random.default_rng(0)
            )
        except (InputError, ArithmeticError, np.linalg.LinAlgError):
            return None
        return release.parameters

    def learn(self, count: int, rng: np.random.Generator) -> None:
        """Fit to ``count`` records like the known ones; keep the numbers that differ."""
        drawn = [self._draw(rng) for _ in range(count)]
        states = [self._state(one) for one in drawn[:_TRIED]]
        self.repeatable = _same(states[0], self._state(drawn[0]))
        if not self.repeatable or not self._moves([state for state in states if state]):
            return
        states += [self._state(one) for one in drawn[_TRIED:]]
        pairs = [(one, state) for one, state in zip(drawn, states, strict=True) if state]
        if len(pairs) < 2:
            return
        self._choose_names([state for _, state in pairs])
        flat = np.stack([self._flat(state) for _, state in pairs])
        if not flat.shape[1]:
            return
        self._mean, scale = flat.mean(axis=0), flat.std(axis=0)
        self._kept = scale > _SAME * np.abs(self._mean)
        self._still = self._mean[~self._kept]
        if not self._kept.any():
            return
        self._mean, self._scale = self._mean[self._kept], scale[self._kept]
        records = [one for one, _ in pairs]
        standard = (flat[:, self._kept] - self._mean) / self._scale
        unsteady = self._unsteadiness(records, standard)
        self._scale, standard = self._scale * unsteady, standard / unsteady
        _, sizes, directions = np.linalg.svd(standard, full_matrices=False)
        sizes = sizes / np.sqrt(len(pairs))
        jitter = self._jitter(records[:_NUDGED], directions, _NUDGE)
        fine = self._jitter(records[:_FINELY_NUDGED], directions, _FINE_NUDGE)
        kept = (sizes > _LEAST * sizes[0]) & (sizes > 10.0 * jitter)
        if not kept.any():
            return
        self._directions = directions[kept] / sizes[kept][:, None]
        weights = 1.0 / self._unsteadiness(records, standard @ self._directions.T)
        weights /= np.sqrt(np.mean(weights**2))
        self._directions *= weights[:, None]
        weights /= sizes[kept]
        self.noise, self.fine = (
            float(np.sqrt(np.mean((weights * one[kept]) ** 2))) for one in (jitter, fine)
        )
        seen = standard @ self._directions.T
        self.shadows = tuple(
            Shadow(one, release) for one, release in zip(records, seen, strict=True)
        )

    def _moves(self, states: Sequence[Mapping[str, Array]]) -> bool:
        """Return whether any number differs between releases of one shape."""
        if len(states) < 2:
            return False
        self._choose_names(states)
        flat = np.stack([self._flat(state) for state in states])
        return bool((flat.std(axis=0) > _SAME * np.abs(flat.mean(axis=0))).any())

    def _draw(self, rng: np.random.Generator) -> FloatArray:
        """Mix two known records of a class entry by entry, and change the result slightly."""
        standard = self.standard()
        first, second = rng.integers(len(standard), size=2)
        taken = rng.random(self.unknowns) < 0.5
        for choice in self.choices:
            taken[list(choice.places)] = taken[choice.places[0]]
        mixed = np.where(taken, standard[first], standard[second])
        noise = 0.1 * rng.standard_normal(self.unknowns)
        mixed[self.free] += noise[self.free]
        for entry, value in (pair for column in self.held for pair in column):
            mixed[entry] = (value - self.centre[entry]) / self.unit[entry]
        return np.asarray(mixed)

    def _unsteadiness(self, drawn: Sequence[FloatArray], standard: FloatArray) -> FloatArray:
        """Return each number's deviation from a linear function of the record, relative to its own.

        Numbers that change smoothly with a record guide a search. Signs of eigenvectors and similar
        numbers mislead it, and get a low weight.
        """
        known = np.hstack([np.ones((len(drawn), 1)), np.stack(drawn)])
        spare = len(drawn) - np.linalg.matrix_rank(known)
        if spare < 1:
            return np.ones(standard.shape[1])
        rest = standard - known @ np.linalg.lstsq(known, standard, rcond=None)[0]
        return np.asarray(np.sqrt(np.sum(rest**2, axis=0) / spare + _SMOOTH))

    def _jitter(
        self, drawn: Sequence[FloatArray], directions: FloatArray, nudge: float
    ) -> FloatArray:
        """Return the deviation of releases from a line if records move little along one."""
        moves = []
        for unknowns in drawn:
            states = [self._state(unknowns + step) for step in (-nudge, 0.0, nudge)]
            if all(s is not None and self._fits(s) for s in states):
                before, at, after = (self._flat(s)[self._kept] for s in states if s is not None)
                moves.append(directions @ ((before - 2 * at + after) / np.sqrt(6) / self._scale))
        if not moves:
            return np.zeros(len(directions))
        return np.asarray(np.sqrt(np.mean(np.square(moves), axis=0)))

    def _choose_names(self, states: Sequence[Mapping[str, Array]]) -> None:
        first, *others = states
        self._names = tuple(
            name
            for name, array in first.items()
            if array.dtype.kind in "fiub"
            and name.rpartition(".")[2] not in _STILL
            and all(name in one and one[name].shape == array.shape for one in others)
        )
        self._shapes = {name: first[name].shape for name in self._names}

    def _fits(self, state: Mapping[str, Array]) -> bool:
        return all(
            name in state and state[name].shape == shape for name, shape in self._shapes.items()
        )

    def _flat(self, state: Mapping[str, Array]) -> FloatArray:
        parts = [np.asarray(state[name], dtype=np.float64).reshape(-1) for name in self._names]
        return np.concatenate(parts) if parts else np.empty(0)

    def read(self, state: Mapping[str, Array]) -> FloatArray | None:
        """Return a release in the shadows' directions, or None if it has another shape."""
        if not len(self._directions) or not self._fits(state):
            return None
        standard = (self._flat(state)[self._kept] - self._mean) / self._scale
        return np.asarray(self._directions @ standard)

    def contradicts(self, state: Mapping[str, Array]) -> bool:
        """Return whether a number that is equal for all records of the class differs here."""
        if not self._names or not self._fits(state):
            return False
        still = self._flat(state)[~self._kept]
        return not np.allclose(still, self._still, rtol=1e-6, atol=1e-12)

    def __call__(self, unknowns: FloatArray) -> FloatArray | None:
        """Return the release with this record, or None if the estimator can't be fitted to it."""
        state = self._state(unknowns)
        return None if state is None else self.read(state)


@dataclass(frozen=True, eq=False)
class UnknownChoice:
    """Unknowns that together have one of a few values: ``options`` (values, places)."""

    places: tuple[int, ...]
    options: FloatArray


def choices_of(schema: Schema, centre: FloatArray, unit: FloatArray) -> tuple[UnknownChoice, ...]:
    """Return the choices of a schema, in standard units: categories, few integers, missing or not.

    A category's options are its levels; a number's, whether it is missing.
    """
    found = []
    for column, place in zip(schema.columns, schema.places, strict=True):
        entries = list(range(place.start, place.stop))
        if not column.kind.numeric:
            parts = [(entries, np.eye(len(entries)))]
        else:
            values = np.array(column.levels, dtype=np.float64)[:, None]
            parts = [(entries[:1], values)] if len(values) else []
            parts += [(entries[1:], np.array([[0.0], [1.0]]))] if column.missing else []
        for own, options in parts:
            found.append(UnknownChoice(tuple(own), (options - centre[own]) / unit[own]))
    return tuple(found)


def _same(one: Mapping[str, Array] | None, other: Mapping[str, Array] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(
        np.array_equal(array, other[name]) for name, array in one.items()
    )
