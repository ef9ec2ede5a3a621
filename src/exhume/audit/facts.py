"""What is measured of a setting once: the oracle, the prior, the bound, utility, in plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from exhume.audit.membership import Outcome, membership_outcome
from exhume.audit.overfitting import overfitting
from exhume.audit.plan import Plan
from exhume.audit.rates import relative_rate
from exhume.audit.scoring import yardstick
from exhume.audit.setting import Setting
from exhume.audit.threads import one_thread
from exhume.audit.threat import threat_model
from exhume.config import SettingTable
from exhume.defences.base import undefended

CLOSENESS = tuple(np.round(np.geomspace(0.02, 2.0, 25), 4).tolist())
"""Where the bound is drawn: fractions of the distance to the nearest known record."""
_PRIOR_SAMPLES = 2000
_UTILITY_RELEASES = 8


@dataclass(frozen=True)
class BoundPoint:
    """The ceiling at one closeness: at most ``gamma``, where a blind guess reaches ≤ ``kappa``."""

    closeness: float
    kappa: float
    gamma: float


@dataclass(frozen=True)
class SettingFacts:
    """Everything that the report says of a setting beside its records."""

    name: str
    title: str
    threat: tuple[str, ...]
    fixed_set: int
    shadow_targets: int
    targets: int
    record_shape: tuple[int, ...]
    value_range: tuple[float, float] | None
    unit: str
    nearest_mean: float | None
    percentile_levels: tuple[float, ...]
    percentile_means: tuple[float, ...]
    event: str
    private: bool
    bound: tuple[BoundPoint, ...]
    bound_at: BoundPoint | None
    bound_method: str
    bound_binds: str
    bound_note: str
    prior_samples: int
    utility_name: str
    utility: float | None
    defended: bool
    membership: str = ""
    membership_test: str = ""
    membership_advantage: float | None = None
    membership_auc: float | None = None
    nearest_mse: float | None = None
    percentile_mse: tuple[float, ...] = ()
    training_utility: float | None = None
    loss_auc: float | None = None
    theorem_2: float | None = None
    group: str = ""
    defence: str = ""
    batch: int | None = None
    floor: float | None = None
    floor_binds: str = ""
    floor_note: str = ""
    liu_rate: float | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self)


def measure(plan: Plan, index: int) -> SettingFacts:
    """Measure a setting; takes one pass over its pool and a few releases."""
    with one_thread():
        return _measured(plan, index)


def _measured(plan: Plan, index: int) -> SettingFacts:
    setting, yard = plan.setting(index), yardstick(plan, index)
    table, oracle = plan.config.setting[index], yard.oracle
    event = setting.mechanism.event(setting.records)
    bound = _bound(plan, index, setting)
    fit = overfitting(setting, _UTILITY_RELEASES, plan.config.audit.seed)
    game = _membership(plan, setting)
    return SettingFacts(
        name=setting.name,
        title=setting.title,
        threat=(*threat_model(setting), *_begun_at_the_truth(table)),
        fixed_set=len(setting.fixed_set),
        shadow_targets=0 if setting.shadow_targets is None else len(setting.shadow_targets),
        targets=setting.size,
        record_shape=setting.fixed_set.record_shape,
        value_range=setting.value_range,
        unit=_unit(setting),
        nearest_mean=None if oracle is None else oracle.mean_distance,
        percentile_levels=() if oracle is None else oracle.levels,
        percentile_means=() if oracle is None else tuple(oracle.mean_percentiles.tolist()),
        event=str(event),
        private=bool(bound.points),
        bound=bound.points,
        bound_at=bound.at,
        bound_method=bound.method,
        bound_binds=bound.binds,
        bound_note=bound.note,
        prior_samples=bound.samples,
        utility_name=fit.name,
        utility=fit.utility,
        defended=undefended(setting.mechanism) is not setting.mechanism,
        membership=game.text,
        membership_test=game.test,
        membership_advantage=game.advantage,
        membership_auc=game.auc,
        # The success metric is a root mean square; papers report its square.
        nearest_mse=None if oracle is None else _mean_square(oracle.nearest_distance),
        percentile_mse=()
        if oracle is None
        else tuple(_mean_square(column) for column in oracle.percentiles.T),
        training_utility=fit.training_utility,
        loss_auc=fit.loss_auc,
        theorem_2=bound.theorem_2,
        group=table.group,
        defence=table.defence,
        batch=setting.batch,
        liu_rate=relative_rate(setting.mechanism, setting.records) if table.group else None,
        **_floor(setting),
    )


def _begun_at_the_truth(table: SettingTable) -> tuple[str, ...]:
    """Say so where searches begin at the training records: what they reach is no attack's."""
    if table.start is None or not table.start.truth:
        return ()
    return (
        f"No attack: searches begin with {table.start.truth:.0%} of the training records "
        "themselves, to see whether they stay there.",
    )


def _floor(setting: Setting) -> dict[str, Any]:
    """What noise on a gradient leaves, in the units of the error; nothing where there is none."""
    from exhume.audit.floors import error_floor

    found = error_floor(setting) if setting.given is None else None
    if found is None:
        return {}
    return {"floor": found.value, "floor_binds": found.binds, "floor_note": found.note}


def _mean_square(distances: Any) -> float:
    return float(np.square(distances).mean())


def _membership(plan: Plan, setting: Setting) -> Outcome:
    trials, seed = plan.config.audit.membership, plan.config.audit.seed
    return membership_outcome(setting, trials, seed) if trials else Outcome()


@dataclass(frozen=True)
class _Bound:
    points: tuple[BoundPoint, ...] = ()
    at: BoundPoint | None = None
    method: str = ""
    binds: str = ""
    note: str = ""
    samples: int = 0
    theorem_2: float | None = None


def _bound(plan: Plan, index: int, setting: Setting) -> _Bound:
    """The ceiling over a range of closeness, where the mechanism's event has a finite guarantee."""
    from exhume.bounds import ceiling, rdp_curve

    event = setting.mechanism.event(setting.records)
    if ceiling(event, 0.5) is None:
        return _Bound(note="no bound holds: this training is not differentially private")
    if setting.known_columns:
        return _Bound(
            note="a bound holds, but what is known of a record changes the prior it starts from"
        )
    if setting.targets is None:
        return _Bound(note="a bound holds, but without targets there is no prior to place it on")
    samples, radii = _prior_samples(plan, index, setting)
    asked = plan.config.audit.closeness
    points = [_point(event, samples, radii, c) for c in sorted({*CLOSENESS, asked})]
    found = ceiling(event, max(points[0].kappa, 1e-12))
    assert found is not None
    at, curve = next(point for point in points if point.closeness == asked), rdp_curve(event)
    return _Bound(
        points=tuple(points),
        at=at,
        method=found.method.value,
        binds=found.binds.value,
        note=(
            f"the chance of a blind guess was bounded from {len(samples)} records like the targets "
            "(95 % confidence)"
        ),
        samples=len(samples),
        theorem_2=None if curve is None else curve.theorem_2(at.kappa),
    )


def _point(event: Any, samples: Any, radii: Any, closeness: float) -> BoundPoint:
    from exhume.bounds import ceiling, kappa_from_samples

    kappa = kappa_from_samples(samples, eta=closeness * radii).kappa
    found = ceiling(event, kappa)
    assert found is not None
    return BoundPoint(closeness, kappa, found.gamma)


def _prior_samples(plan: Plan, index: int, setting: Setting) -> tuple[Any, Any]:
    """Records like the targets, in the metric's own units, and each one's distance to success."""
    from exhume.metrics import nearest_neighbours

    assert setting.targets is not None
    x = np.asarray(setting.targets.x, dtype=np.float64)
    if setting.reserve is not None:
        x = np.concatenate([x, np.asarray(setting.reserve.x, dtype=np.float64)])[:_PRIOR_SAMPLES]
    metric = yardstick(plan, index).success
    nearest = nearest_neighbours(x, setting.pool, metric).nearest_distance
    rows = metric.embed(x)
    # The metric is a root mean square: the Euclidean distance over √d.
    return rows, nearest * np.sqrt(rows.shape[1])


def _unit(setting: Setting) -> str:
    if setting.known_columns:
        return "root mean square over the values that were not known"
    if setting.value_range is None:
        return "root mean square, in standard deviations of each column of the known records"
    low, high = setting.value_range
    return f"root mean square, on values from {low:g} to {high:g}"
