"""One network for the judge: attack it, and gather the evidence for each candidate.

The network is a release of the setting, or one that the adversary trained on its own shadow
targets. Beside the evidence stands what each candidate is nearest to, where that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from exhume.attacks.weights_only.authenticity import (
    Comparison,
    NearestRecord,
    compare,
    fitted,
    gather,
)
from exhume.attacks.weights_only.starts import GivenStart, MixedStart
from exhume.audit.given_starts import begun
from exhume.audit.plan import Plan
from exhume.audit.setting import Range, ThreatSetting
from exhume.protocol.arrays import Array
from exhume.protocol.attack import Attack, Refusal, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.protocol.seeds import stream
from exhume.runtime.threads import one_thread


@dataclass(frozen=True)
class NetworkTask:
    """One network to attack: the adversary's own, or (``own`` false) a release of the setting."""

    setting: int
    attack: int
    own: bool
    number: int

    @property
    def artefact(self) -> str:
        """Where the run folder keeps what came out."""
        kind = "own" if self.own else "release"
        return f"{artefacts_of(self.setting)}{self.attack:02d}-{kind}-{self.number:05d}"


def artefacts_of(setting: int) -> str:
    """Return what the names of all artefacts for a setting's judge begin with."""
    return f"{setting:03d}-real-"


def examine(plan: Plan, task: NetworkTask) -> dict[str, Array]:
    """Attack one network and gather the evidence for each candidate, and what it is nearest to."""
    plan.require_same_files()
    with one_thread():
        setting = plan.setting(task.setting)
        case = _own_case(plan, setting, task) if task.own else _released(plan, setting, task)
        try:
            attack = _begun(plan, setting, task, case)
        except InputError as error:
            # Too few records of a class to begin at: this network teaches nothing.
            none = _none(case, error)
            return dict(_measured(setting, None, case, none, none, None))
        found, again = (_attacked(attack, case, rng) for rng in _streams(plan, setting, task))
        # The structural similarity is for readers; a judge has no use for it, and it is slow.
        span = None if task.own else setting.value_range
        arrays = dict(_measured(setting, attack, case, found, again, span))
        return arrays if task.own else {**arrays, **_records(case)}


@dataclass(frozen=True, eq=False)
class Case:
    """A network, what its adversary knows, what it was trained on, and as much that it was not."""

    release: Release
    knowledge: Knowledge
    training: Records | None
    held_out: Records | None


def _own_case(plan: Plan, setting: ThreatSetting, task: NetworkTask) -> Case:
    """Train on shadow targets; the adversary of that network has the others."""
    own, held_out, rest = own_split(plan, setting, task.number)
    rng = stream(plan.config.audit.seed, "authenticity", "training", setting.name, task.number)
    known = replace(
        setting.knowledge(*range(setting.records)),
        labels=own.labels if setting.knows_labels else None,
        shadow_targets=rest,
    )
    return Case(setting.mechanism.publish(own, rng=rng), known, own, held_out)


def own_split(plan: Plan, setting: ThreatSetting, number: int) -> tuple[Records, Records, Records]:
    """Return what one of the adversary's networks is trained on, as many others, and all others.

    Networks have no record in common as long as there are enough.
    """
    pool, size, seed = setting.shadow_targets, setting.records, plan.config.audit.seed
    assert pool is not None
    role, start = ("authenticity", "split", setting.name), size * number
    order = stream(seed, *role).permutation(len(pool))
    if (number + 1) * size > len(pool):
        order, start = stream(seed, *role, number).permutation(len(pool)), 0
    order = np.roll(order, -start)
    own, rest = order[:size], order[size:]
    return pool.take(own), pool.take(rest[:size]), pool.take(rest)


def _released(plan: Plan, setting: ThreatSetting, task: NetworkTask) -> Case:
    group = setting.groups(range(plan.planned(task.setting)))[task.number]
    (release,) = setting.releases([group], plan.config.audit.seed)
    training = None if setting.targets is None else setting.targets.take(list(group))
    held_out = None if training is None else held_out_records(plan, setting)
    return Case(release, setting.knowledge(*group), training, held_out)


def held_out_records(plan: Plan, setting: ThreatSetting) -> Records:
    """Return as many records as a release is made of that no network here was trained on."""
    size, reserve = setting.records, setting.reserve
    if reserve is None or len(reserve) < size:
        reserve = setting.shadow_targets
    assert reserve is not None
    rng = stream(plan.config.audit.seed, "authenticity", "held-out", setting.name)
    return reserve.take(rng.permutation(len(reserve))[:size])


def centre_of(setting: ThreatSetting) -> Array:
    """Return what is subtracted before correlations: the mean of the adversary's own records."""
    return np.asarray(setting.pool.mean(axis=0))


def _streams(plan: Plan, setting: ThreatSetting, task: NetworkTask) -> list[np.random.Generator]:
    """Return the streams of the attack, as its trial had it, and of another start of it."""
    seed, name = plan.config.audit.seed, plan.attacks[task.attack].name
    first = setting.records * task.number
    role: tuple[str | int, ...] = ("attack", setting.name, name, first)
    if task.own:
        role = ("authenticity", "attack", setting.name, name, task.number)
    return [stream(seed, *role), stream(seed, *role, "again")]


def _attacked(attack: Attack, case: Case, rng: np.random.Generator) -> Reconstruction:
    try:
        return attack.reconstruct(case.release, case.knowledge, rng=rng)
    except Exception as error:  # whatever an attack may raise: its trial has it on record
        return _none(case, error)


def _none(case: Case, error: Exception) -> Reconstruction:
    return nothing(case.knowledge, Status.CRASHED, str(error)[:200])


def _measured(
    setting: ThreatSetting,
    attack: Attack | None,
    case: Case,
    found: Reconstruction,
    again: Reconstruction,
    value_range: Range | None,
) -> Iterator[tuple[str, Array]]:
    evidence = gather(
        case.release, case.knowledge, found, records=setting.records, others=(again.samples,)
    )
    yield "samples", np.asarray(found.samples, dtype=np.float32)
    yield "evidence", evidence.values
    yield "objective", np.array(_objectives(case, found))
    if case.training is None or case.held_out is None or not len(found):
        return
    seen = compare(
        found.samples,
        *(case.training.x, case.held_out.x),
        starting=_starting(attack, setting),
        centre=centre_of(setting),
        value_range=value_range,
    )
    yield from _columns(seen)


def _records(case: Case) -> dict[str, Array]:
    """Return what the report shows beside candidates, where it is known."""
    sides = {"training": case.training, "held_out": case.held_out}
    return {
        f"{side}.records": np.asarray(records.x, dtype=np.float32)
        for side, records in sides.items()
        if records is not None
    }


def _begun(plan: Plan, setting: ThreatSetting, task: NetworkTask, case: Case) -> Attack:
    """Return the attack as it begins where the setting says, on networks of one's own too."""
    attack, table = plan.attacks[task.attack], plan.config.setting[task.setting]
    if table.start is None:
        return attack
    own = replace(setting, targets=case.training, shadow_targets=case.knowledge.shadow_targets)
    return begun(attack, own, table, range(setting.records))


def _starting(attack: Attack | None, setting: ThreatSetting) -> Array | None:
    """Return the records that a search began at, where they were given to it."""
    start = getattr(attack, "start", None)
    if not isinstance(start, GivenStart | MixedStart):
        return None
    shape = setting.fixed_set.record_shape
    return start.draw(setting.records, shape, np.random.default_rng(0))


def _objectives(case: Case, found: Reconstruction) -> list[float]:
    """Return the objective at the candidates and at the truth, NaN if unknown."""
    from exhume.attacks.weights_only.read_weights import read_any

    network = read_any(case.release, case.knowledge)
    sets = [found.samples, None if case.training is None else case.training.x]
    values = []
    for x in sets:
        if isinstance(network, Refusal) or x is None or not len(x):
            values.append(float("nan"))
            continue
        scores = network.scores(np.asarray(x, dtype=np.float64).reshape(len(x), -1))
        classes = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        values.append(fitted(network, x, classes).residual)
    return values


NEAREST = ("index", "distance", "ncc", "ssim")


def _columns(seen: Comparison) -> Iterator[tuple[str, Array]]:
    yield "rank", seen.rank
    sides: dict[str, NearestRecord | None] = {
        "training": seen.training,
        "held_out": seen.held_out,
        "starting": seen.starting,
    }
    for side, nearest in sides.items():
        for column in NEAREST if nearest is not None else ():
            yield f"{side}.{column}", np.asarray(getattr(nearest, column))
