"""What no attack beats, and what a training is shown not to keep: bounds of a setting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.audit.plan import Plan
from exhume.audit.scoring import yardstick
from exhume.audit.setting import ThreatSetting
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.seeds import stream
from exhume.runlog.setting import BoundPoint, CanaryOutcome, CeilingCurve, KappaPoint

if TYPE_CHECKING:
    import dp_accounting

    from exhume.protocol.arrays import FloatArray

CLOSENESS = tuple(np.round(np.geomspace(0.02, 2.0, 25), 4).tolist())
"""The closeness values of the bound: fractions of the distance to the nearest known record."""
KAPPAS = (0.5, 0.1, 0.01, 0.001, 1e-4, 1e-6)
"""Where the bound is listed for whoever has to choose."""
DELTA = 1e-5
"""The δ at which ε is reported: that of Opacus' examples."""
_PRIOR_SAMPLES = 2000


def ceiling_curve(plan: Plan, index: int, setting: ThreatSetting) -> CeilingCurve:
    """Return the ceiling where the mechanism's event has a finite guarantee, and ε beside it."""
    from exhume.audit.stages.train import epsilon_at
    from exhume.bounds import ceiling, gammas

    event = setting.mechanism.event(setting.records)
    if ceiling(event, 0.5) is None:
        refused = getattr(setting.mechanism, "refused", "")
        note = f"no bound holds: {refused or 'this training is not differentially private'}"
        return CeilingCurve(event=str(event), note=note)
    epsilon, found = epsilon_at(event, DELTA), gammas(event, KAPPAS)
    assert found is not None
    return replace(
        _placed(plan, index, setting, event),
        over_kappa=tuple(KappaPoint(*pair) for pair in zip(KAPPAS, found.tolist(), strict=True)),
        epsilon=epsilon,
        delta=None if epsilon is None else DELTA,
    )


def _placed(
    plan: Plan, index: int, setting: ThreatSetting, event: dp_accounting.DpEvent
) -> CeilingCurve:
    """Return the ceiling at the chance of a blind guess, as far as that is known."""
    audit = plan.config.audit
    if setting.register is not None:
        count = setting.register.count
        return _at(event, 1.0 / count, f"a blind guess names one of {count} candidates")
    if audit.kappa is not None:
        return _at(event, audit.kappa, "the chance of a blind guess is what [audit] kappa says")
    if setting.known_columns:
        note = "a bound holds, but the known part of a record changes its prior"
        return CeilingCurve(event=str(event), note=note)
    if setting.targets is None and audit.similar is None:
        note = (
            "a bound holds, and without targets there is no prior to place it on: choose κ below, "
            "set [audit] kappa, or name a file of similar records ([audit] similar)"
        )
        return CeilingCurve(event=str(event), note=note)
    return _by_samples(plan, index, setting, event)


def _at(event: dp_accounting.DpEvent, kappa: float, note: str) -> CeilingCurve:
    """Return the ceiling at one known chance of a blind guess."""
    from exhume.bounds import ceiling, rdp_curve

    found, curve = ceiling(event, kappa), rdp_curve(event)
    assert found is not None
    at = BoundPoint(1.0, kappa, found.gamma)
    return CeilingCurve(
        event=str(event),
        private=True,
        points=(at,),
        at=at,
        method=found.method.value,
        binds=found.binds.value,
        note=note,
        theorem_2=None if curve is None else curve.theorem_2(kappa),
    )


def _by_samples(
    plan: Plan, index: int, setting: ThreatSetting, event: dp_accounting.DpEvent
) -> CeilingCurve:
    """Return the ceiling over a range of closeness, κ bounded from records like the targets."""
    from exhume.bounds import ceiling, rdp_curve

    samples, radii = _prior_samples(plan, index, setting)
    asked = plan.config.audit.closeness
    points = [_point(event, samples, radii, c) for c in sorted({*CLOSENESS, asked})]
    found = ceiling(event, max(points[0].kappa, 1e-12))
    assert found is not None
    at, curve = next(point for point in points if point.closeness == asked), rdp_curve(event)
    return CeilingCurve(
        event=str(event),
        private=True,
        points=tuple(points),
        at=at,
        method=found.method.value,
        binds=found.binds.value,
        note=(
            f"the success of a blind guess was bounded from {len(samples)} records like the "
            "targets (95 % confidence)"
        ),
        prior_samples=len(samples),
        theorem_2=None if curve is None else curve.theorem_2(at.kappa),
    )


def _point(event: Any, samples: Any, radii: Any, closeness: float) -> BoundPoint:
    from exhume.bounds import ceiling, kappa_from_samples

    kappa = kappa_from_samples(samples, eta=closeness * radii).kappa
    found = ceiling(event, kappa)
    assert found is not None
    return BoundPoint(closeness, kappa, found.gamma)


def _prior_samples(plan: Plan, index: int, setting: ThreatSetting) -> tuple[Any, Any]:
    """Records like the targets, in the metric's own units, and each one's distance to success."""
    from exhume.metrics import nearest_neighbours

    x, metric = _similar(plan, setting), yardstick(plan, index).success
    nearest = nearest_neighbours(x, setting.pool, metric).nearest_distance
    rows = metric.embed(x)
    # The metric is a root mean square: the Euclidean distance over √d.
    return rows, nearest * np.sqrt(rows.shape[1])


def _similar(plan: Plan, setting: ThreatSetting) -> FloatArray:
    from exhume.data import read_records

    given, shape = plan.config.audit.similar, setting.fixed_set.record_shape
    if given is not None:
        found = read_records(given)
        if found.record_shape != shape:
            raise InputError(
                f"audit.similar has records of shape {found.record_shape}, the fixed set {shape}"
            )
        return np.asarray(found.x, dtype=np.float64)[:_PRIOR_SAMPLES]
    assert setting.targets is not None
    x = np.asarray(setting.targets.x, dtype=np.float64)
    if setting.reserve is None:
        return x
    return np.concatenate([x, np.asarray(setting.reserve.x, dtype=np.float64)])[:_PRIOR_SAMPLES]


def canary_audit(setting: ThreatSetting, count: int, seed: int) -> CanaryOutcome | None:
    """Train once with canaries, records with labels drawn anew; None where none are asked for."""
    from exhume.attacks.informed.transcript.one_run import canary_run
    from exhume.training import Recorded

    mechanism, reserve = setting.mechanism, setting.reserve
    if not count:
        return None
    if not isinstance(mechanism, Recorded) or setting.given is not None:
        raise InputError(
            f"setting {setting.name!r}: canaries go with release.kind = 'transcript' and [data]"
        )
    have = 0 if reserve is None else len(reserve)
    if reserve is None or have < count:
        raise InputError(
            f"setting {setting.name!r}: {count} canaries are taken from records that nobody in the "
            f"threat model has, of which there are {have}"
        )
    rng = stream(seed, "canaries", setting.name)
    chosen = reserve.take(rng.choice(have, count, replace=False))
    labels = rng.permutation(np.asarray(chosen.labels))
    run = canary_run(mechanism, setting.fixed_set, Records(chosen.x, labels), rng=rng)
    found = run.epsilon(DELTA)
    return CanaryOutcome(
        found.lower, found.gaussian, DELTA, found.right, found.guesses, found.canaries
    )
