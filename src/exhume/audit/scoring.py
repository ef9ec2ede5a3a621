"""Where the truth comes in: metrics, the oracle's threshold, success. Attacks never get here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.audit.influence import columns
from exhume.audit.plan import Plan
from exhume.audit.setting import Setting
from exhume.config import Config
from exhume.errors import InputError
from exhume.metrics import (
    RMSE,
    Metric,
    Oracle,
    lpips_unavailable,
    make,
    match,
    nearest_neighbours,
)
from exhume.metrics.attributes import AttributeRMSE
from exhume.metrics.euclidean import EuclideanMetric
from exhume.metrics.names import names
from exhume.reconstruction import Reconstruction
from exhume.release import Weights
from exhume.training import Model
from exhume.training.answers import trained_model


@dataclass(frozen=True)
class Scores:
    """How good one reconstruction is; everything None where the truth is not known."""

    success: bool | None = None
    distance: float | None = None
    threshold: float | None = None
    by_name: Mapping[str, float | None] = field(default_factory=dict)
    label_correct: bool | None = None


@dataclass(frozen=True, eq=False)
class Yardstick:
    """The metrics of a setting, and the oracle that sets its thresholds."""

    success: EuclideanMetric
    metrics: tuple[Metric, ...]
    oracle: Oracle | None


def yardstick(plan: Plan, index: int) -> Yardstick:
    """Return the metrics and thresholds of a setting; a process computes them once."""
    kept = _cached(plan.config, plan.files, index)
    if "yardstick" not in kept:
        kept["yardstick"] = _measured(plan.setting(index), plan.config.audit.metrics)
    return kept["yardstick"]


@lru_cache(maxsize=4)
def _cached(config: Config, files: tuple[str, ...], index: int) -> dict[str, Yardstick]:
    return {}


def _measured(setting: Setting, wanted: Sequence[str]) -> Yardstick:
    scale, value_range = setting.scale, setting.value_range
    success: EuclideanMetric = RMSE(value_range=value_range, scale=scale)
    if setting.known_columns:
        # What was known beforehand must not count as rebuilt.
        success = AttributeRMSE(known=setting.known_mask, value_range=value_range, scale=scale)
    predict = _classifier(setting)
    metrics = tuple(
        make(name, value_range=value_range, scale=scale, predict=predict)
        for name in wanted or default_metrics(setting)
    )
    oracle = None
    if setting.targets is not None:
        oracle = nearest_neighbours(setting.targets.x, setting.pool, success)
    return Yardstick(success, metrics, oracle)


def default_metrics(setting: Setting) -> tuple[str, ...]:
    """Images get the perceptual metrics too; LPIPS only where its weights are at hand."""
    shape = setting.fixed_set.record_shape
    if setting.value_range is None or len(shape) < 2 or min(shape[:2]) < 16:
        return ("rmse", "mse") if setting.value_range is None else ("rmse", "mse", "psnr", "ncc")
    perceptual = ("ssim",) if lpips_unavailable() is not None else ("ssim", "lpips")
    return ("rmse", "mse", "psnr", "ncc", *perceptual)


def check_metrics(wanted: Sequence[str]) -> None:
    """Refuse a metric's name before anything is run."""
    for name in wanted:
        if name not in names():
            raise InputError(f"there is no metric called {name!r}; there are {', '.join(names())}")


def scores_of(
    plan: Plan, index: int, targets: Sequence[int], results: Sequence[Reconstruction]
) -> list[Scores]:
    """Score each result's first candidate against its target."""
    setting, yard = plan.setting(index), yardstick(plan, index)
    if setting.targets is None or yard.oracle is None:
        return [Scores() for _ in results]
    truth, labels = setting.targets.x[list(targets)], setting.targets.labels[list(targets)]
    thresholds = yard.oracle.nearest_distance[list(targets)] * plan.config.audit.closeness
    found = [i for i, result in enumerate(results) if len(result)]
    batches = setting.groups(range(len(targets)))
    tables = {m.name: _metric_column(m, truth, results, found, batches) for m in yard.metrics}
    tables |= columns(plan, index, targets)
    distances = _column(yard.success, truth, results, found)
    return [
        Scores(
            success=bool(distances[i] <= thresholds[i]),
            distance=_or_none(distances[i]),
            threshold=float(thresholds[i]),
            by_name={name: _or_none(column[i]) for name, column in tables.items()},
            label_correct=_label_correct(result, labels[i]),
        )
        for i, result in enumerate(results)
    ]


def members(
    plan: Plan,
    index: int,
    groups: Sequence[tuple[int, ...]],
    results: Sequence[Reconstruction],
    *,
    blind: bool = False,
) -> list[Reconstruction]:
    """Return one result a target: a batch's candidates are dealt out to the targets in it.

    A release shows no order of its batch, so the order is not held against an attack: candidates
    are assigned so that the total error is the smallest. One ``blind`` guess is made of every
    target: whoever does not look need not know how many there are.
    """
    setting, yard = plan.setting(index), yardstick(plan, index)
    if setting.batch is None:
        return list(results)
    dealt = []
    for group, result in zip(groups, results, strict=True):
        order = np.arange(len(group))
        order[len(result) :] = -1
        if blind and len(result) == 1:
            order = np.zeros(len(group), dtype=int)
        elif setting.targets is not None and len(result):
            truth = setting.targets.x[list(group)]
            order = match(truth, result.samples, yard.success).indices
        dealt += [_member(result, int(place)) for place in order]
    return dealt


def _member(result: Reconstruction, place: int) -> Reconstruction:
    """Return the candidate at ``place`` alone; -1 stands for none."""
    own = slice(place, place + 1) if place >= 0 else slice(0, 0)
    parts = (result.labels, result.confidence, result.error_estimate)
    labels, confidence, estimate = (None if part is None else part[own] for part in parts)
    return Reconstruction(
        result.samples[own],
        result.status,
        labels,
        confidence,
        estimate,
        result.message,
        result.stats,
    )


def _metric_column(
    metric: Metric,
    truth: Array,
    results: Sequence[Reconstruction],
    found: Sequence[int],
    batches: Sequence[tuple[int, ...]],
) -> FloatArray:
    """Score all results one by one, or a batch's results together."""
    if not metric.joint:
        return _column(metric, truth, results, found)
    parts = [[i for i in batch if i in found] for batch in batches]
    columns = [_column(metric, truth, results, part) for part in parts]
    joined: FloatArray = np.full(len(results), np.nan)
    for part, column in zip(parts, columns, strict=True):
        joined[part] = column[part]
    return joined


def _column(
    metric: Metric, truth: Array, results: Sequence[Reconstruction], found: Sequence[int]
) -> FloatArray:
    column = np.full(len(results), np.nan)
    if found:
        samples = np.stack([results[i].samples[0] for i in found])
        column[list(found)] = metric(truth[list(found)], samples)
    return column


def _label_correct(result: Reconstruction, label: object) -> bool | None:
    if result.labels is None or not len(result.labels):
        return None
    found = result.labels[0]
    if np.asarray(label).dtype.kind == "f" or np.asarray(found).dtype.kind == "f":
        gap = abs(float(found) - float(label))  # type: ignore[arg-type]
        return bool(gap <= 1e-3 * max(1.0, abs(float(label))))  # type: ignore[arg-type]
    return bool(found == label)


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _classifier(setting: Setting) -> _Classifier | None:
    """A public classifier for KL: the same model, trained on the fixed set alone."""
    model = trained_model(setting.mechanism)
    if not isinstance(model, Model) or model.classes is None or setting.given is not None:
        return None
    return _Classifier(model, setting)


class _Classifier:
    """Trained on first use: most audits never ask."""

    def __init__(self, model: Model, setting: Setting) -> None:
        self._model, self._setting = model, setting
        self._release: Weights | None = None

    def __call__(self, records: Array) -> FloatArray:
        if self._release is None:
            release = self._model.publish(self._setting.fixed_set, rng=np.random.default_rng(0))
            assert isinstance(release, Weights)
            self._release = release
        return self._model.means(self._model.scores(self._release, records))
