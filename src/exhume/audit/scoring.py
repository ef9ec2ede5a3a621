"""Where the truth comes in: metrics, the oracle's threshold, success. Attacks never get here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from exhume.audit.plan import Plan
from exhume.audit.setting import ThreatSetting
from exhume.audit.target_influence import influence_of
from exhume.config import Config
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
from exhume.metrics.error import EuclideanMetric
from exhume.metrics.names import names
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.images import sides_of
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.release import Weights
from exhume.training import Model
from exhume.training.answers import trained_model


@dataclass(frozen=True)
class Scores:
    """The scores of one reconstruction; everything is None if the truth is not known."""

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
    return _yardstick(plan.config, plan.files, plan.live, index)


@lru_cache(maxsize=4)
def _yardstick(
    config: Config, files: tuple[str, ...], live: tuple[ThreatSetting, ...], index: int
) -> Yardstick:
    setting = Plan(config, (), files, live=live).setting(index)
    return _measured(setting, config.audit.metrics)


def _measured(setting: ThreatSetting, wanted: Sequence[str]) -> Yardstick:
    scale, value_range = setting.scale, setting.value_range
    success: EuclideanMetric = RMSE(value_range=value_range, scale=scale)
    if setting.known_columns:
        # Known values must not count as rebuilt.
        success = AttributeRMSE(known=setting.known_mask, value_range=value_range, scale=scale)
    predict = _classifier(setting)
    metrics = tuple(
        make(
            name,
            value_range=value_range,
            scale=scale,
            predict=predict,
            schema=setting.schema,
            unknown=_unknown_columns(setting),
        )
        for name in wanted or default_metrics(setting)
    )
    oracle = None
    if setting.targets is not None:
        if not len(setting.pool):
            raise InputError(
                f"setting {setting.name!r}: success is measured by the nearest record that the "
                "adversary has, and it has none: add knowledge.shadow_targets"
            )
        oracle = nearest_neighbours(setting.targets.x, setting.pool, success)
    return Yardstick(success, metrics, oracle)


def default_metrics(setting: ThreatSetting) -> tuple[str, ...]:
    """Images also get the perceptual metrics; LPIPS only if its weights are available."""
    shape = setting.fixed_set.record_shape
    if setting.schema is not None and setting.batch is not None:
        return ("rmse", "mse", "values-right", "records-right")
    if setting.value_range is None or len(shape) not in (2, 3) or min(sides_of(shape)[:2]) < 16:
        return ("rmse", "mse") if setting.value_range is None else ("rmse", "mse", "psnr", "ncc")
    perceptual = ("ssim",) if lpips_unavailable() is not None else ("ssim", "lpips")
    return ("rmse", "mse", "psnr", "ncc", *perceptual)


def _unknown_columns(setting: ThreatSetting) -> tuple[str, ...]:
    """Return the columns of a table of which some entry is not known."""
    if setting.schema is None:
        return ()
    known, schema = set(setting.known_columns), setting.schema
    pairs = zip(schema.names, schema.places, strict=True)
    return tuple(name for name, place in pairs if not known >= {*range(place.start, place.stop)})


def check_metrics(wanted: Sequence[str]) -> None:
    """Refuse a metric's name before anything is run."""
    for name in wanted:
        if name not in names():
            raise InputError(
                f"there is no metric called {name!r}; the metrics are {', '.join(names())}"
            )


def scores_of(
    plan: Plan, index: int, targets: Sequence[int], results: Sequence[Reconstruction]
) -> list[Scores]:
    """Score each result's first candidate against its target."""
    setting, yard = plan.setting(index), yardstick(plan, index)
    if setting.targets is None or yard.oracle is None:
        return [Scores() for _ in results]
    truth, labels = setting.targets.x[list(targets)], setting.targets.labels[list(targets)]
    thresholds = yard.oracle.nearest_distance[list(targets)] * plan.config.audit.closeness
    if setting.register is not None:
        thresholds = np.array([_halfway(setting, yard.success, target) for target in targets])
    found = [i for i, result in enumerate(results) if len(result)]
    batches = setting.groups(range(len(targets)))
    tables = {m.name: _metric_column(m, truth, results, found, batches) for m in yard.metrics}
    tables |= influence_of(plan, index, targets)
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


def _halfway(setting: ThreatSetting, metric: EuclideanMetric, target: int) -> float:
    """Return half the distance to the next candidate: what is closer names the target alone.

    No point is that close to two candidates, so a blind guess names the target with chance 1/K.
    """
    assert setting.targets is not None
    candidates = setting.knowledge(target).candidates
    assert candidates is not None
    distances = metric.pairwise(setting.targets.x[[target]], candidates.x)[0]
    return 0.5 * float(np.sort(distances)[1])


def members(
    plan: Plan,
    index: int,
    groups: Sequence[tuple[int, ...]],
    results: Sequence[Reconstruction],
    *,
    blind: bool = False,
) -> list[Reconstruction]:
    """Return one result per target: a batch's candidates are assigned to its targets.

    A release does not show the order of its batch, so the order does not count: candidates are
    assigned so that the total error is smallest. One ``blind`` guess is used for every target,
    because a guess does not know their number.
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
    parts = (result.labels, result.confidence, result.error_estimate, result.cell_confidence)
    labels, confidence, estimate, cells = (None if part is None else part[own] for part in parts)
    return Reconstruction(
        result.samples[own],
        result.status,
        labels,
        confidence,
        estimate,
        result.message,
        result.stats,
        cells,
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


def _classifier(setting: ThreatSetting) -> _Classifier | None:
    """A public classifier for KL: the same model, trained on the fixed set alone."""
    model = trained_model(setting.mechanism)
    if not isinstance(model, Model) or model.classes is None or setting.given is not None:
        return None
    return _Classifier(model, setting)


class _Classifier:
    """Trained on first use: most audits never need it."""

    def __init__(self, model: Model, setting: ThreatSetting) -> None:
        self._model, self._setting = model, setting
        self._release: Weights | None = None

    def __call__(self, records: Array) -> FloatArray:
        if self._release is None:
            release = self._model.publish(self._setting.fixed_set, rng=np.random.default_rng(0))
            assert isinstance(release, Weights)
            self._release = release
        return self._model.means(self._model.scores(self._release, records))
