"""The prior-aware attack: which record, given what was known before? (Hayes et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exhume.attacks.informed.transcript.evidence import log_ratios
from exhume.attacks.informed.transcript.watched import Rest, WatchedTraining, rest_of, watched
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import Lacking, ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release


@dataclass(frozen=True)
class PriorAware(ParsedAttack[WatchedTraining]):
    """Answers with the candidate, or the record, that explains a transcript best.

    The adversary is the one of the bound. It has every step's parameters and noisy gradient, all
    other records, and K equally likely candidates, of which one is the target. The answer is the
    most likely candidate; ``confidence`` is its posterior probability. Without candidates, the
    prior is the Gaussian of the records that it knows, and the answer is the most probable record,
    by Gauss–Newton over all steps.
    """

    name: ClassVar[str] = "prior-aware"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.TRANSCRIPT

    def parse(self, release: Release, knowledge: Knowledge) -> WatchedTraining | Refusal:
        """Require a transcript, the training behind it, the other records, and a prior."""
        if reason := lacks_prior(knowledge):
            return Refusal(reason)
        return watched(release, knowledge)

    def _solve(self, problem: WatchedTraining, rng: np.random.Generator) -> Reconstruction:
        candidates, rest = problem.knowledge.candidates, rest_of(problem)
        if candidates is None:
            from exhume.attacks.informed.transcript.continuous_prior import most_probable_record

            return doubted(most_probable_record(rest, problem.knowledge, rng), rest)
        scores = log_ratios(rest, candidates, problem.knowledge.target_weight)
        if not np.isfinite(scores).all():
            reason = (
                "no candidate has a finite likelihood: the transcript is not from this training"
            )
            return nothing(problem.knowledge, Status.WRONG_ASSUMPTION, reason)
        return ranked(candidates, scores, rest)


def lacks_prior(knowledge: Knowledge) -> str | None:
    """Return that there is no question to answer, or None."""
    candidates, fixed_set = knowledge.candidates, knowledge.fixed_set
    if candidates is not None and len(candidates) < 2:
        reason = "needs two or more candidates, of which one is the target"
        return Lacking(reason, "knowledge.candidates")
    if candidates is None and fixed_set is not None and fixed_set.y is None:
        return Lacking("needs the labels of the other training records", "knowledge.fixed_set")
    return None


def ranked(candidates: Records, scores: FloatArray, rest: Rest | None = None) -> Reconstruction:
    """Return the candidates, the most likely first, with their posterior probabilities."""
    from scipy.special import softmax

    order = np.argsort(-scores, kind="stable")
    ordered = candidates.take(order)
    found = Reconstruction(
        ordered.x,
        Status.CONVERGED,
        labels=ordered.labels,
        confidence=softmax(scores)[order],
        stats={
            "lead": float(scores[order[0]] - scores[order[1]]),
            "log_ratio": float(scores[order[0]]),
        },
    )
    return found if rest is None else doubted(found, rest)


def doubted(found: Reconstruction, rest: Rest) -> Reconstruction:
    """Return an answer with the measured noise, and what it says of the training."""
    if rest.measured is None:
        return found
    stats = {**found.stats, "noise_over_stated": rest.measured}
    if not rest.contradicted:
        return replace(found, stats=stats)
    message = (
        f"the residual of the steps is {rest.measured:.4g} times as large as the stated "
        "noise: the training is not the described one; the measured noise was used"
    )
    return replace(found, stats=stats, message="; ".join(filter(None, (message, found.message))))
