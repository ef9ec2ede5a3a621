"""What hiding the steps buys: the same question, asked of the last parameters alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exhume.attacks.informed.transcript.prior_aware import lacks_prior, ranked
from exhume.attacks.informed.transcript.watched import WatchedTraining, watched
from exhume.protocol.attack import Lacking, ParsedAttack, Refusal, ThreatModel
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.training.network import DPClipping, Training
from exhume.training.recorded import Recorded


@dataclass(frozen=True)
class LastIterate(ParsedAttack[WatchedTraining]):
    """Answers with the candidate whose training without noise ends nearest to the last parameters.

    Of the transcript it uses the end alone. Beside the prior-aware attack it shows what hiding the
    steps buys. It is no bound: a stronger attack on the last parameters may exist. Without
    candidates, it is trajectory inversion of the last parameters.
    """

    name: ClassVar[str] = "last-iterate"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.TRANSCRIPT

    def parse(self, release: Release, knowledge: Knowledge) -> WatchedTraining | Refusal:
        """Ask for a training that differs between repetitions by its noise alone."""
        if reason := lacks_prior(knowledge):
            return Refusal(reason)
        found = watched(release, knowledge)
        if isinstance(found, Refusal):
            return found
        recorded = found.training
        if not isinstance(recorded, Recorded) or not isinstance(recorded.inner, Training):
            return Refusal("runs the training again, and a recorded one only tells its steps")
        if recorded.inner.batches is not None:
            return Refusal("the records of each step are drawn in secret where steps are hidden")
        if not recorded.inner.initial.known:
            return Refusal(Lacking("needs the initial parameters", "knowledge.initial"))
        return found

    def _solve(self, problem: WatchedTraining, rng: np.random.Generator) -> Reconstruction:
        assert isinstance(problem.training, Recorded)
        training, candidates = problem.training.inner, problem.knowledge.candidates
        assert isinstance(training, Training)
        if candidates is None:
            return _inverted(problem, rng)
        if training.clipping is not None:
            training = replace(training, clipping=DPClipping(training.clipping.norm, 0.0))
        objective = training.objective()
        seen = objective.flat(problem.transcript.final)
        squares = []
        for index in range(len(candidates)):
            one = candidates.take([index])
            weight = problem.knowledge.target_weight
            own = Records(one.x, one.y, None if weight == 1.0 else np.array([weight]))
            end = training.run(objective, problem.fixed_set.with_record(own), rng=rng)
            squares.append(float((end - seen).double().square().sum()))
        distances = np.array(squares)
        # The noise that gathered on each number, as the best candidate leaves it.
        noise = max(float(distances.min()) / len(seen), 1e-30)
        found = ranked(candidates, -0.5 * distances / noise)
        return replace(found, message=_ALONE)


_ALONE = "the last parameters alone were used, not the steps"


def _inverted(problem: WatchedTraining, rng: np.random.Generator) -> Reconstruction:
    """Invert the last parameters, with the Gaussian of the known records as a prior."""
    from exhume.attacks.informed.trajectory import TrajectoryInversion

    assert isinstance(problem.training, Recorded)
    known = replace(problem.knowledge, training=problem.training.inner)
    found = TrajectoryInversion().reconstruct(problem.transcript.weights(), known, rng=rng)
    return replace(found, message="; ".join(filter(None, (found.message, _ALONE))))
