"""The bins of an imprint: their placement, and the extraction of records from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exhume.attacks.gradients.analytic.input_layer import Backward
from exhume.attacks.gradients.analytic.read_gradient import FirstLayerGradient
from exhume.models.imprint import Imprinted
from exhume.protocol.arrays import Array, FloatArray

_FIT = 1e-4
"""Relative tolerance between the errors of a lone record and those the network returns for it."""

_SAMPLE = 600
"""The number of records that suffices for a few principal components."""


def crafted(
    network: Imprinted,
    pool: FloatArray,
    inner: Mapping[str, Array],
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Return the parameters of an imprint for records similar to ``pool`` (n, d)."""
    each = network.bins // network.measurements
    rows, thresholds = [], []
    for direction in principal_components(pool, network.measurements, rng):
        values = pool @ direction
        spread = max(float(values.std()), 1e-12)
        levels = np.quantile(values, np.linspace(0.0, 1.0, each, endpoint=False))
        # The lowest threshold is far down: a record below every threshold would leave no trace.
        levels[0] -= 5.0 * spread
        levels = np.maximum.accumulate(levels) + 1e-6 * spread * np.arange(each)
        rows.append(np.tile(direction / spread, (each, 1)))
        thresholds.append(levels / spread)
    weight, threshold = np.concatenate(rows), np.concatenate(thresholds)
    typical = float(np.maximum(pool @ weight.T - threshold, 0.0).sum(axis=1).mean())
    if network.behind is None:
        out = rng.normal(size=network.outputs)
    else:
        out = np.full(pool.shape[1], float(pool.std()) / 10.0)
    return {
        "imprint.weight": weight,
        "imprint.bias": -threshold,
        "spread.weight": np.tile(out[:, None] / max(typical, 1e-12), (1, network.bins)),
        "spread.bias": np.zeros(len(out)),
        **{f"behind.{name}": values for name, values in inner.items()},
    }


def principal_components(
    pool: FloatArray, count: int, rng: np.random.Generator
) -> list[FloatArray]:
    """Return ``count`` uncorrelated unit directions (d,) of large variance in ``pool``."""
    if len(pool) > _SAMPLE:
        pool = pool[np.sort(rng.choice(len(pool), _SAMPLE, replace=False))]
    centred = pool - pool.mean(axis=0)
    # The eigenvectors come from the smaller Gram matrix, the largest last.
    sizes, shares = np.linalg.eigh(centred @ centred.T)
    keep = np.flatnonzero(sizes > 1e-9 * max(float(sizes[-1]), 1e-300))[::-1][:count]
    found = (centred.T @ shares[:, keep] / np.sqrt(sizes[keep])).T
    missing = count - len(found)
    extra = rng.normal(size=(max(missing, 0), pool.shape[1]))
    extra /= np.maximum(np.linalg.norm(extra, axis=1, keepdims=True), 1e-300)
    return [*found, *extra]


@dataclass(frozen=True, eq=False)
class ImprintedImages:
    """A record (d,) read from a bin, the index of its label, and its error due to noise."""

    record: FloatArray
    signal: float
    label: int
    error: float
    confidence: float


class Bins:
    """The differences of neighbouring bins (measurements, bins each), minus the records found."""

    def __init__(self, observed: FirstLayerGradient, backward: Backward) -> None:
        network = observed.step.network
        assert isinstance(network, Imprinted)
        self._observed, self._backward = observed, backward
        groups = (network.measurements, network.bins // network.measurements)
        weight = observed.weight.reshape(*groups, -1)
        bias = observed.bias.reshape(groups)
        last = np.zeros_like(weight[:, :1])
        self._rows = -np.diff(np.concatenate([weight, last], axis=1), axis=1)
        self._signals = -np.diff(np.concatenate([bias, np.zeros((groups[0], 1))], axis=1), axis=1)
        self._directions = backward.weight.reshape(*groups, -1)[:, 0]
        self._thresholds = -backward.bias.reshape(groups)
        rounding = 2.0**-22 * float(np.abs(weight).max())
        self.noise = max(self._empty_level(), rounding)

    def _empty_level(self) -> float:
        """Return the level of bins that must be empty: each record fills one per measurement."""
        sizes = np.sort(np.sqrt(np.mean(self._rows**2, axis=2)), axis=None)
        empty = sizes.size - self._observed.count * len(self._rows)
        return float(np.median(sizes[:empty])) if empty >= 8 else 0.0

    def peeled(
        self, bounds: tuple[float, float] | None
    ) -> tuple[list[ImprintedImages], list[ImprintedImages]]:
        """Return the records found alone, and the remaining mixtures of several per bin."""
        alone: list[ImprintedImages] = []
        while len(alone) < self._observed.count:
            fresh = [one for one, lone in self._read(bounds) if lone]
            taken = 0
            for one in fresh:
                if not any(_same(one, other) for other in alone):
                    self._take_out(one)
                    alone.append(one)
                    taken += 1
            if not taken:
                break
        return alone, self._distinct([one for one, lone in self._read(bounds) if not lone], alone)

    def _read(self, bounds: tuple[float, float] | None) -> list[tuple[ImprintedImages, bool]]:
        """Return the content of every non-empty bin, and whether it is a single record."""
        where = np.argwhere(np.sqrt(np.mean(self._rows**2, axis=2)) > 6.0 * self.noise)
        where = np.array([at for at in where if abs(self._signals[tuple(at)]) > self.noise])
        if not len(where):
            return []
        signals = self._signals[where[:, 0], where[:, 1]]
        inputs = self._rows[where[:, 0], where[:, 1]] / signals[:, None]
        records = self._observed.layer.records(inputs)
        shape = self._observed.step.network.record_shape
        neuron = where[:, 0] * self._signals.shape[1] + where[:, 1]
        expected = self._backward.directions(records.reshape(-1, *shape))
        expected = expected[np.arange(len(where)), :, neuron] / self._observed.count
        slack = self.noise / np.abs(signals)
        off = np.abs(expected - signals[:, None]) / np.abs(signals)[:, None]
        labels = off.argmin(axis=1)
        fits = self._own_bin(inputs, where, slack) & _inside(records, bounds, slack)
        if self._observed.step.classes is not None:
            fits &= off.min(axis=1) < np.maximum(_FIT, 10.0 * slack)
        return [
            (
                ImprintedImages(
                    records[i],
                    float(signals[i]),
                    int(labels[i]),
                    float(3.0 * slack[i]),
                    float(0.99 / (1.0 + slack[i])) if fits[i] else 0.2,
                ),
                bool(fits[i]),
            )
            for i in range(len(where))
        ]

    def _own_bin(self, inputs: FloatArray, where: Array, slack: FloatArray) -> Array:
        """Whether the measurement of a record belongs to the bin it was read from."""
        values = np.sum(inputs * self._directions[where[:, 0]], axis=1)
        low = self._thresholds[where[:, 0], where[:, 1]]
        top = np.full((len(self._thresholds), 1), np.inf)
        above = np.concatenate([self._thresholds[:, 1:], top], axis=1)
        high = above[where[:, 0], where[:, 1]]
        margin = 1e-4 + 10.0 * slack * np.abs(inputs).max(axis=1)
        return np.asarray((values > low - margin) & (values < high + margin))

    def _take_out(self, one: ImprintedImages) -> None:
        """Subtract a record from its bin, for every measurement."""
        inputs = self._observed.layer.inputs(one.record[None])[0]
        for group, direction in enumerate(self._directions):
            above = np.flatnonzero(inputs @ direction > self._thresholds[group])
            if len(above):
                self._rows[group, above[-1]] -= one.signal * inputs
                self._signals[group, above[-1]] -= one.signal

    def _distinct(
        self, mixed: list[ImprintedImages], alone: list[ImprintedImages]
    ) -> list[ImprintedImages]:
        kept: list[ImprintedImages] = []
        for one in mixed:
            if not any(_same(one, other) for other in (*alone, *kept)):
                kept.append(one)
        return kept


def _inside(records: FloatArray, bounds: tuple[float, float] | None, slack: FloatArray) -> Array:
    if bounds is None:
        return np.ones(len(records), dtype=bool)
    margin = (0.02 + 10.0 * slack) * (bounds[1] - bounds[0])
    low, high = records.min(axis=1), records.max(axis=1)
    return np.asarray((low > bounds[0] - margin) & (high < bounds[1] + margin))


def _same(one: ImprintedImages, other: ImprintedImages) -> bool:
    size = max(float(np.abs(one.record).max()), 1e-300)
    slack = max(1e-4, 3.0 * (one.error + other.error))
    return bool(np.abs(one.record - other.record).max() <= slack * size)
