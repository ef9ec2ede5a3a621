"""Federated training: the server sees only the releases of a mechanism, round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.defence import Defence
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Release, Update
from exhume.training.batches import Batches, Index
from exhume.training.gradient import GradientStep, gradient_step
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.optimisers import SGD

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.derivatives.objective import Objective


@dataclass(frozen=True)
class Federated:
    """Settings of a server: per round, ``clients`` releases of ``batch_size`` records each.

    Gradients are averaged and used for gradient descent. Updates are averaged and added, with
    server momentum (Hsu et al. 2019). The records are shuffled again each epoch, and a round is
    always complete. With ``poisson`` each record is in each round with probability batch_size / n
    instead, as the accounting of DP-SGD requires, and releases are weighted by the expected number
    of records.
    """

    rounds: int
    batch_size: int
    optimiser: SGD
    clients: int = 1
    poisson: bool = False

    def __post_init__(self) -> None:
        for name in ("rounds", "batch_size", "clients"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.poisson and self.clients > 1:
            raise InputError(
                f"poisson sampling needs a single client: clients = 1, got {self.clients}"
            )

    @property
    def records(self) -> int:
        """The number of records per round (with Poisson sampling: on average)."""
        return self.batch_size * self.clients

    def batches(self, count: int, rng: np.random.Generator) -> Iterator[list[Index]]:
        """Yield every round's batches out of ``count`` records, one per release."""
        if count < self.records:
            raise InputError(f"a round needs {self.records} records, but there are {count}")
        order = Batches(self.records, seed=None, poisson=self.poisson)
        epochs = -(-self.rounds // max(1, count // self.records))
        drawn = order.steps(count, epochs, rng)
        whole = (one for one in drawn if self.poisson or len(one) == self.records)
        for _, chosen in zip(range(self.rounds), whole, strict=False):
            yield np.array_split(chosen, self.clients)

    def event(self, mechanism: Mechanism, count: int) -> dp_accounting.DpEvent:
        """Return the privacy event of the whole training on ``count`` records, for one of them.

        With shuffling, a record takes part once per epoch. Poisson sampling amplifies DP-SGD's own
        event. All other mechanisms reveal the number of records, so no amplification is claimed.
        """
        import dp_accounting

        mechanism = once(mechanism)
        if self.poisson:
            rate = min(1.0, self.records / count)
            one, times = mechanism.sampled_event(self.batch_size, rate), self.rounds
        else:
            one = mechanism.event(self.batch_size)
            times = -(-self.rounds // max(1, count // self.records))
        if isinstance(one, dp_accounting.NonPrivateDpEvent):
            return one
        return dp_accounting.SelfComposedDpEvent(one, times)

    def train(
        self,
        mechanism: Mechanism,
        data: Records,
        order: np.random.Generator,
        rng: np.random.Generator,
    ) -> dict[str, Array]:
        """Return the parameters by name after all rounds; raises DivergedError if not finite.

        The training starts at the parameters of the mechanism's gradient step. ``order`` draws the
        batches (and secret initial parameters), ``rng`` everything that the mechanism draws: two
        defences with the same ``order`` see the same batches.
        """
        mechanism = once(mechanism)
        step = gradient_step(mechanism)
        assert step is not None
        objective = step.objective()
        place = _Place(objective, step.theta(objective, order))
        live = once(mechanism, lambda inner: _Live(**_fields(inner), place=place))
        server = _Server(self, mechanism, place, rng)
        for number, chosen in enumerate(self.batches(len(data), order), start=1):
            try:
                releases = [live.publish(data.take(i), rng=rng) for i in chosen if len(i)]
                server.take(releases, sum(map(len, chosen)))
            except DivergedError as error:
                raise DivergedError(f"round {number} of {self.rounds}: {error}") from None
        return dict(objective.named(place.theta))


class _Place:
    """The current state of the training: one objective for all rounds, and the parameters (P,)."""

    def __init__(self, objective: Objective, theta: torch.Tensor) -> None:
        self.objective, self.theta = objective, theta


@dataclass(frozen=True, eq=False)
class _Live(GradientStep):
    """A gradient step at the current parameters of the training, without rebuilding the network."""

    place: _Place = field(kw_only=True)

    def objective(self, precision: str | None = None) -> Objective:
        """Return the objective of the training."""
        return self.place.objective

    def theta(self, objective: Objective, rng: np.random.Generator) -> torch.Tensor:
        """Return the current parameters."""
        return self.place.theta


def _fields(step: GradientStep) -> dict[str, Any]:
    return {one.name: getattr(step, one.name) for one in fields(step)}


class _Server:
    """Updates the parameters with the releases."""

    def __init__(
        self, settings: Federated, mechanism: Mechanism, place: _Place, rng: np.random.Generator
    ) -> None:
        self._settings, self._mechanism, self._place, self._rng = settings, mechanism, place, rng
        self._state = settings.optimiser.start(place.theta)

    def take(self, releases: Sequence[Release], records: int) -> None:
        """Take one step along the mean of ``releases``, which cover about ``records`` records."""
        place, optimiser = self._place, self._settings.optimiser
        mean = _mean(place.objective, releases) if releases else self._silence()
        if releases and isinstance(releases[0], Update):
            # The clients have already taken their steps: their change is added directly.
            optimiser, mean = SGD(1.0, optimiser.momentum), -mean
        elif releases and self._settings.poisson:
            mean = mean * (records / self._settings.records)
        place.theta, self._state = optimiser.step(place.theta, mean, self._state)
        if not bool(place.theta.isfinite().all()):
            raise DivergedError(f"the parameters went to infinity: {optimiser.describe()}")

    def _silence(self) -> torch.Tensor:
        """Return the release of a round without any record: at most noise."""
        shape = tuple(self._place.theta.shape)
        deviation = self._mechanism.noise_alone(self._settings.records)
        if deviation == 0.0:
            return self._place.theta.new_zeros(shape)
        return self._place.objective.tensor(self._rng.normal(0.0, deviation, shape))


def _mean(objective: Objective, releases: Sequence[Release]) -> torch.Tensor:
    import torch

    if not all(isinstance(one, Gradient | Update) for one in releases):
        raise InputError("federated training takes only gradients and updates")
    return torch.stack([objective.flat(dict(one.arrays())) for one in releases]).mean(dim=0)


def once(
    mechanism: Mechanism, change: Callable[[GradientStep], GradientStep] | None = None
) -> Mechanism:
    """Return the mechanism of a client in one round, optionally with another step.

    ``Rounds`` describes what an adversary has after several rounds; here, the training runs them.
    """
    stack, wrapping = layers(mechanism), (Defence, LocalSteps, Aggregate)
    core = next(one for one in stack if not isinstance(one, wrapping))
    if not isinstance(core, GradientStep):
        kind = type(core).__name__
        raise InputError(f"federated training needs gradients or updates, not {kind}")
    found: Mechanism = core if change is None else change(core)
    for one in reversed(stack):
        if isinstance(one, wrapping):
            found = one.in_one_round(found)
    return found
