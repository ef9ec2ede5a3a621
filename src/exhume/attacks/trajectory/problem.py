"""What trajectory inversion needs to know, and what it makes of it: a training to repeat."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.defences.base import Blurring, Defence
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.mechanism import Mechanism
from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.records import Records
from exhume.release import Outputs, Release, Weights
from exhume.training.answers import Answers
from exhume.training.network import Training


@dataclass(frozen=True, eq=False)
class Given(Initialisation):
    """Parameters that the adversary has: ``theta`` (P,), in the network's own order."""

    theta: Array | None = None

    @property
    def known(self) -> bool:
        """Always."""
        return True

    def draw(self, network: Network, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return the given parameters by name."""
        assert self.theta is not None
        found: dict[str, FloatArray] = {}
        start = 0
        for name, shape in network.parameter_shapes().items():
            size = int(np.prod(shape))
            part = np.array(self.theta[start : start + size], dtype=np.float64)
            found[name] = part.reshape(shape)
            start += size
        return found


@dataclass(frozen=True, eq=False)
class Problem:
    """A training that can be repeated, its known records, and the noise on what it released."""

    training: Training
    fixed_set: Records
    deviation: float

    def known_to(self, knowledge: Knowledge) -> Knowledge:
        """Return what is known with the defences taken off and the start put in."""
        return replace(knowledge, training=self.training, fixed_set=self.fixed_set)


def problem_of(knowledge: Knowledge) -> Problem:
    """Return what is to be solved, of knowledge that ``unfit`` finds nothing wrong with."""
    assert knowledge.fixed_set is not None
    mechanism, fixed_set, variance = knowledge.training, knowledge.fixed_set, 0.0
    while isinstance(mechanism, Defence | Answers):
        if isinstance(mechanism, Blurring):
            variance += mechanism.deviation(len(fixed_set) + 1) ** 2
            fixed_set = mechanism.prepared(fixed_set)
        mechanism = mechanism.inner
    assert isinstance(mechanism, Training)
    if knowledge.initial is not None:
        theta = mechanism.objective("float64").flat(knowledge.initial).cpu().numpy()
        mechanism = replace(mechanism, initial=Given(theta=theta))
    return Problem(mechanism, fixed_set, float(np.sqrt(variance)))


def unfit(release: Release, knowledge: Knowledge) -> str | None:
    """Say what is missing to repeat the training or to read the release, or return None."""
    if not isinstance(release, Weights | Outputs):
        return "takes the weights or the answers of a network, nothing else"
    training, reason = _trained(knowledge.training)
    if training is None:
        return reason
    if isinstance(release, Outputs) != _answers(knowledge.training):
        return "the release is not of the kind that the known training publishes"
    return (
        _missing(training, knowledge) or _strange(training, knowledge) or _unread(release, training)
    )


def unfolded(release: Release, knowledge: Knowledge) -> str | None:
    """Say why trainings like this can't be simulated many at a time, or return None."""
    from exhume.training.folded import unfoldable

    training, reason = _trained(knowledge.training)
    if training is None:
        return reason
    if not isinstance(release, Weights):
        return "answers show the weights only in part"
    if knowledge.target_weight != 1.0:
        return f"the target has weight {knowledge.target_weight}, only 1 is simulated"
    if training.classes is None and knowledge.labels is None:
        return "the response of a regression's target is not known (knowledge.labels)"
    return training.objective().mismatch(release.parameters) or unfoldable(training)


def _trained(mechanism: Mechanism | None) -> tuple[Training | None, str]:
    """Return the training under defences that leave it as it is, or why there is none."""
    while isinstance(mechanism, Defence | Answers):
        if isinstance(mechanism, Defence) and not isinstance(mechanism, Blurring):
            return None, f"does not see through the defence {mechanism.name!r}"
        mechanism = mechanism.inner
    if not isinstance(mechanism, Training):
        return None, "needs the training of a network (knowledge.training)"
    return mechanism, ""


def _answers(mechanism: Mechanism | None) -> bool:
    while isinstance(mechanism, Defence):
        mechanism = mechanism.inner
    return isinstance(mechanism, Answers)


def _missing(training: Training, knowledge: Knowledge) -> str | None:
    if knowledge.fixed_set is None or len(knowledge.fixed_set) == 0:
        return "needs every other training record (knowledge.fixed_set)"
    if knowledge.fixed_set.y is None:
        return "needs the labels of the fixed set"
    if not training.initial.known and knowledge.initial is None:
        return "needs the initial parameters: a known seed, or knowledge.initial"
    if training.batches is not None and not training.batches.known:
        return "needs the order of the mini-batches"
    return None


def _strange(training: Training, knowledge: Knowledge) -> str | None:
    if knowledge.record_shape != training.network.record_shape:
        return (
            f"a record has shape {knowledge.record_shape}, "
            f"the network takes {training.network.record_shape}"
        )
    if knowledge.labels is not None and len(knowledge.labels) != 1:
        return f"rebuilds one record, got {len(knowledge.labels)} labels"
    try:
        assert knowledge.fixed_set is not None
        training.responses(knowledge.fixed_set.labels)
        if knowledge.labels is not None:
            training.responses(knowledge.labels)
    except InputError as error:
        return str(error)
    if knowledge.initial is not None:
        return training.objective().mismatch(knowledge.initial)
    return None


def _unread(release: Release, training: Training) -> str | None:
    from exhume.attacks.trajectory.observation import reading

    try:
        reading(release, training.objective())
    except InputError as error:
        return str(error)
    return None
