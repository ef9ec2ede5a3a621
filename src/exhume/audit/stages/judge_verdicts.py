"""The judge's verdicts on candidates: learned on the adversary's own networks, then measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exhume.attacks.weights_only.authenticity import (
    AuthenticityEvidence,
    AuthenticityVerdict,
    Calibration,
    Grouped,
    calibrate,
    claims,
    in_turn,
    joined,
    learn,
)
from exhume.audit.plan import Plan
from exhume.audit.stages.judge_networks import (
    NEAREST,
    NetworkTask,
    centre_of,
    held_out_records,
)
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.runlog.authenticity import (
    ALLOWED,
    LEVEL,
    Authenticity,
    Beside,
    JudgedCandidate,
    RocCurve,
)
from exhume.runlog.store import Store

_MOST_POINTS = 100


def untold(reason: str) -> Authenticity:
    """Return that nothing was judged, and why."""
    return Authenticity(f"undecided: {reason}")


def verdicts(
    plan: Plan, index: int, attack: str, tasks: Sequence[NetworkTask], store: Store
) -> Authenticity:
    """Judge the candidates of a setting's releases from what was kept of every network."""
    own = [_Network(t.number, store.arrays(t.artefact)) for t in tasks if t.own]
    released = [_Network(t.number, store.arrays(t.artefact)) for t in tasks if not t.own]
    artefacts = tuple(t.artefact for t in tasks if not t.own)
    taught = [one for one in own if one.judged]
    try:
        scores = in_turn([n.evidence for n in taught], [n.real for n in taught])
        judge = learn([n.evidence for n in taught], [n.real for n in taught])
    except InputError as error:
        said = f"undecided: on the adversary's own networks, {error}"
        candidates = tuple(c for one in released for c in _candidates(one, None, None))
        return Authenticity(said, attack=attack, candidates=candidates, artefacts=artefacts)
    claimed = _calibrated(taught, scores)
    own_scores = [judge.score(one.evidence) for one in taught]
    given = [judge.score(one.evidence) for one in released]
    told = tuple(
        candidate
        for one, score in zip(released, given, strict=True)
        for candidate in _candidates(one, score, claimed)
    )
    judged = [i for i, one in enumerate(released) if one.judged]
    measured = None
    if judged:
        measured = _calibrated([released[i] for i in judged], [given[i] for i in judged])
    asked = _asked(plan, index, (taught, own_scores), (released, given)) if judged else None
    counts, right = _counts(told)
    return Authenticity(
        said=_said(claimed, counts, right),
        tells=claimed.tells,
        attack=attack,
        networks=len(taught),
        judge=judge.describe(),
        counts=counts,
        right=right,
        claimed=_curve(claimed),
        measured=None if measured is None else _curve(measured, claimed.threshold),
        held_out=None if asked is None else _curve(asked[0]),
        without=None if asked is None else _curve(asked[1]),
        objective=tuple(one.objective for one in released),
        candidates=told,
        artefacts=artefacts,
    )


@dataclass(frozen=True, eq=False)
class _Network:
    """What was kept of one network."""

    number: int
    arrays: Mapping[str, Array]

    @property
    def samples(self) -> Array:
        return self.arrays["samples"]

    @property
    def evidence(self) -> AuthenticityEvidence:
        return AuthenticityEvidence(self.arrays["evidence"])

    @property
    def judged(self) -> bool:
        """Whether it has candidates, and it is known which are real."""
        return "rank" in self.arrays

    @property
    def real(self) -> Array:
        ncc = self.arrays["training.ncc"]
        return np.asarray((self.arrays["rank"] == 1) & (ncc > LEVEL))

    @property
    def objective(self) -> tuple[float | None, float | None]:
        at, truth = (_number(float(value)) for value in self.arrays["objective"])
        return at, truth

    def beside(self, side: str, place: int) -> Beside | None:
        """Return what a candidate is nearest to of one kind, where that is known."""
        if f"{side}.ncc" not in self.arrays:
            return None
        index, distance, ncc, ssim = (self.arrays[f"{side}.{name}"][place] for name in NEAREST)
        return Beside(int(index), float(distance), float(ncc), _number(float(ssim)))


def _calibrated(networks: Sequence[_Network], scores: Sequence[FloatArray]) -> Calibration:
    """Measure scores network by network, picture by picture."""
    parts = [
        Grouped(s, n.arrays["training.index"], np.full(len(s), place))
        for place, (n, s) in enumerate(zip(networks, scores, strict=True))
    ]
    everything, real = joined(parts), np.concatenate([n.real for n in networks])
    return calibrate(everything.only(real), everything.only(~real), allowed=ALLOWED)


def _candidates(
    network: _Network, scores: FloatArray | None, claimed: Calibration | None
) -> list[JudgedCandidate]:
    found = []
    for place, row in enumerate(network.evidence.values):
        score = None if scores is None else float(scores[place])
        wrong = None
        if claimed is not None and score is not None:
            share = claimed.false_positives(score)
            wrong = (share.estimate, share.low, share.high)
        verdict = AuthenticityVerdict.UNTOLD
        if claimed is not None and score is not None:
            verdict = claimed.verdict(score)
        known = network.judged
        found.append(
            JudgedCandidate(
                network.number,
                place,
                verdict.value,
                score,
                wrong,
                *(float(row[0]), float(row[1])),
                real=bool(network.real[place]) if known else None,
                rank=int(network.arrays["rank"][place]) if known else None,
                training=network.beside("training", place),
                held_out=network.beside("held_out", place),
                starting=network.beside("starting", place),
            )
        )
    return found


def _asked(
    plan: Plan,
    index: int,
    own: tuple[Sequence[_Network], Sequence[FloatArray]],
    released: tuple[Sequence[_Network], Sequence[FloatArray]],
) -> tuple[Calibration, Calibration]:
    """Put pictures to networks: trained on against held out, and against networks without them."""
    setting = plan.setting(index)
    assert setting.targets is not None
    centre, size = centre_of(setting), setting.records
    held_out = held_out_records(plan, setting).x
    members, strangers, elsewhere = [], [], []
    for one, scores in zip(*released, strict=True):
        if not one.judged:
            continue
        images = np.asarray(setting.targets.x[size * one.number : size * (one.number + 1)])
        picture, network = np.arange(size), np.full(size, one.number)
        answers = [claims(x, one.samples, scores, centre=centre) for x in (images, held_out)]
        members.append(Grouped(answers[0], picture, network))
        strangers.append(Grouped(answers[1], picture, network))
        for other, theirs in zip(*own, strict=True):
            there = claims(images, other.samples, theirs, centre=centre)
            elsewhere.append(Grouped(there, picture, network))
    return (
        calibrate(joined(members), joined(strangers), allowed=ALLOWED),
        calibrate(joined(members), joined(elsewhere), allowed=ALLOWED),
    )


def _counts(told: Sequence[JudgedCandidate]) -> tuple[dict[str, int], dict[str, int] | None]:
    """Return how often each verdict was given, and how often it was right where that is known."""
    counts = {v.value: sum(c.verdict == v.value for c in told) for v in AuthenticityVerdict}
    known = [c for c in told if c.real is not None]
    if not known:
        return counts, None
    real = AuthenticityVerdict.REAL
    right = {
        v.value: sum(c.verdict == v.value and c.real == (v is real) for c in known)
        for v in (real, AuthenticityVerdict.INVENTED)
    }
    return counts, right


def _said(claimed: Calibration, counts: Mapping[str, int], right: Mapping[str, int] | None) -> str:
    if not claimed.tells:
        return claimed.describe()
    real = counts[AuthenticityVerdict.REAL.value]
    invented = counts[AuthenticityVerdict.INVENTED.value]
    text = (
        f"of {sum(counts.values())} candidates, {real} are judged real and {invented} invented; "
        f"{counts[AuthenticityVerdict.UNTOLD.value]} are undecided"
    )
    known = {} if right is None else right
    parts = [
        f"{n} of the {counts[name]} judged {name} are {name}"
        for name, n in known.items()
        if counts[name]
    ]
    return f"{text}. In truth {' and '.join(parts)}" if parts else text


def _curve(found: Calibration, threshold: float | None = None) -> RocCurve:
    """Return a calibration in plain numbers, at its own threshold or one that was set before."""
    level = found.threshold if threshold is None else threshold
    at = np.inf if level is None else level
    alarms = found.other.share(at, confidence=0.9)
    false, true = found.curve()
    some = min(len(false), _MOST_POINTS)
    kept = np.unique(np.linspace(0, len(false) - 1, some).astype(np.intp))
    return RocCurve(
        area=_number(found.area.estimate),
        low=found.area.low,
        high=found.area.high,
        recognised=found.real.reaching(at) if len(found.real) else 0,
        pictures=found.real.pictures if len(found.real) else 0,
        others=found.other.pictures if len(found.other) else 0,
        networks=len(np.union1d(found.real.network, found.other.network)),
        alarms=_number(alarms.estimate),
        alarms_high=alarms.high,
        false_rate=tuple(float(false[i]) for i in kept),
        true_rate=tuple(float(true[i]) for i in kept),
        said=found.describe(),
    )


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
