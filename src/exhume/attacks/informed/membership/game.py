"""The membership game of Balle et al. 2022, Algorithm 2, played many times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exhume.attacks.informed.membership.base import (
    MembershipAttack,
    MembershipJudge,
    MembershipQuestion,
    MembershipVerdict,
)
from exhume.attacks.informed.membership.result import MembershipResult
from exhume.bounds.membership import Against, power_ceiling
from exhume.protocol.arrays import Array
from exhume.protocol.defence import undefended
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.protocol.seeds import Seed, generator

_CHUNK = 256
"""Number of releases held in memory at once."""


def membership_game(
    mechanism: Mechanism,
    fixed_set: Records,
    candidates: Sequence[MembershipQuestion],
    attack: MembershipAttack,
    *,
    trials: int,
    rng: Seed,
    value_range: tuple[float, float] | None = None,
    shadow_targets: Records | None = None,
) -> MembershipResult:
    """Play ``trials`` games: draw a question and a secret bit, publish, let the attack decide.

    Each trial draws one of ``candidates`` and a fair bit. The mechanism gets the fixed set with the
    challenge (bit 1) or with a newly drawn alternative (bit 0), and its own random streams. The
    attack prepares once per question and sees only the release. ``value_range`` and
    ``shadow_targets`` are further knowledge of the adversary.
    """
    against = _checked(mechanism, candidates, trials)
    ceiling = power_ceiling(mechanism.event(len(fixed_set) + 1), against)
    knowledge = Knowledge(
        record_shape=fixed_set.record_shape,
        value_range=value_range,
        training=mechanism,
        fixed_set=fixed_set,
        shadow_targets=shadow_targets,
    )
    secret, private, preparing, deciding = generator(rng).spawn(4)
    members = secret.integers(2, size=trials).astype(bool)
    which = secret.integers(len(candidates), size=trials)
    judges = {
        int(i): attack.prepare(knowledge, candidates[i], rng=stream)
        for i, stream in enumerate(preparing.spawn(len(candidates)))
        if (which == i).any()
    }
    verdicts: list[MembershipVerdict] = []
    for start in range(0, trials, _CHUNK):
        run = slice(start, start + _CHUNK)
        asked = [candidates[i] for i in which[run]]
        releases = _published(mechanism, fixed_set, asked, members[run], private)
        verdicts += _decided([judges[int(i)] for i in which[run]], releases, deciding)
    return MembershipResult(
        attack.name,
        against,
        members,
        np.array([verdict.member for verdict in verdicts]),
        np.array([verdict.score for verdict in verdicts]),
        sum(verdict.score == 0.0 for verdict in verdicts),
        ceiling,
    )


def _published(
    mechanism: Mechanism,
    fixed_set: Records,
    asked: list[MembershipQuestion],
    members: Array,
    rng: np.random.Generator,
) -> list[Release]:
    """Publish one release per trial; those with an added record share their work."""
    streams = rng.spawn(len(asked))
    chosen = [_secret(c, bool(b), rng) for c, b in zip(asked, members, strict=True)]
    there = [i for i, record in enumerate(chosen) if record is not None]
    records = _joined([record for record in chosen if record is not None])
    releases: dict[int, Release] = {}
    if records is not None:
        rngs = [streams[i] for i in there]
        releases |= zip(there, mechanism.publish_each(fixed_set, records, rngs=rngs), strict=True)
    for i, record in enumerate(chosen):
        if record is None:
            releases[i] = mechanism.publish(fixed_set, rng=streams[i])
    return [releases[i] for i in range(len(asked))]


def _secret(
    candidates: MembershipQuestion, member: bool, rng: np.random.Generator
) -> Records | None:
    if member or candidates.alternatives is None:
        return candidates.challenge if member else None
    return candidates.alternatives.take([int(rng.integers(len(candidates.alternatives)))])


def _joined(records: list[Records]) -> Records | None:
    if not records:
        return None
    labels = [record.y for record in records if record.y is not None]
    return Records(
        np.concatenate([record.x for record in records]), np.concatenate(labels) if labels else None
    )


def _decided(
    judges: list[MembershipJudge], releases: list[Release], rng: np.random.Generator
) -> list[MembershipVerdict]:
    streams = rng.spawn(len(releases))
    trials = zip(judges, releases, streams, strict=True)
    return [judge.weigh(release, rng=stream) for judge, release, stream in trials]


def _checked(
    mechanism: Mechanism, candidates: Sequence[MembershipQuestion], trials: int
) -> Against:
    if trials < 1:
        raise InputError(f"trials must be at least 1, got {trials}")
    if not candidates:
        raise InputError("a game needs at least one question (Candidates), got none")
    against = candidates[0].against
    if any(one.against is not against for one in candidates):
        raise InputError(
            "every question must have alternatives, or none may: their ceilings differ"
        )
    if any(one.records.weight is not None for one in candidates):
        raise InputError("candidates with weights are not supported: omit the weights")
    model = undefended(mechanism)
    if against is Against.NOTHING and getattr(model, "clipping", None) is not None:
        raise InputError(
            "under clipping the number of records is public and would reveal a record left out: "
            "give alternatives"
        )
    return against
