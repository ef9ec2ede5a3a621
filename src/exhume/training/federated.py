"""Federated training: a server that hears nothing but what a mechanism releases, round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from exhume.arrays import Array
from exhume.errors import DivergedError, InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Gradient, Release, Update
from exhume.training.batches import Batches, Index
from exhume.training.gradient import Aggregate, GradientStep, LocalSteps, gradient_step
from exhume.training.optimisers import SGD

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.training.objective import Objective


@dataclass(frozen=True)
class Federated:
    """How a server trains: in every round ``clients`` releases, of ``batch_size`` records each.

    Gradients are averaged and descended along; updates are averaged and added, with the momentum
    on the way (Hsu et al. 2019). The records are shuffled anew each epoch, and a round is always
    whole; with ``poisson`` each record joins each round by chance batch_size / n instead, as the
    accounting of DP-SGD asks for, and what is sent counts by the number of records expected.
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
                f"poisson sampling is of all records together: clients = 1, got {self.clients}"
            )

    @property
    def records(self) -> int:
        """How many records a round takes (with Poisson sampling: on average)."""
        return self.batch_size * self.clients

    def batches(self, count: int, rng: np.random.Generator) -> Iterator[list[Index]]:
        """Yield every round's batches out of ``count`` records, one a release."""
        if count < self.records:
            raise InputError(f"a round takes {self.records} records, there are {count}")
        order = Batches(self.records, seed=None, poisson=self.poisson)
        epochs = -(-self.rounds // max(1, count // self.records))
        drawn = order.steps(count, epochs, rng)
        whole = (one for one in drawn if self.poisson or len(one) == self.records)
        for _, chosen in zip(range(self.rounds), whole, strict=False):
            yield np.array_split(chosen, self.clients)

    def event(self, mechanism: Mechanism, count: int) -> dp_accounting.DpEvent:
        """Return what the whole training on ``count`` records amounts to, for one of them.

        Shuffled, a record takes part once an epoch. Poisson sampling amplifies DP-SGD's own event;
        of nothing else is the number of records hidden, so that nothing else is claimed.
        """
        import dp_accounting

        from exhume.defences import DPSGD

        mechanism = once(mechanism)
        one = mechanism.event(self.batch_size)
        if isinstance(one, dp_accounting.NonPrivateDpEvent):
            return one
        if self.poisson:
            if not isinstance(mechanism, DPSGD):
                return dp_accounting.NonPrivateDpEvent()
            sampled = dp_accounting.PoissonSampledDpEvent(min(1.0, self.records / count), one)
            return dp_accounting.SelfComposedDpEvent(sampled, self.rounds)
        epochs = -(-self.rounds // max(1, count // self.records))
        return dp_accounting.SelfComposedDpEvent(one, epochs)

    def train(
        self,
        mechanism: Mechanism,
        data: Records,
        order: np.random.Generator,
        rng: np.random.Generator,
    ) -> dict[str, Array]:
        """Return the parameters by name after all rounds; DivergedError where they are not finite.

        The training starts where the mechanism's gradient step does. ``order`` draws the batches
        (and where the step draws its parameters in secret, those), ``rng`` whatever the mechanism
        draws: two defences with the same ``order`` see the same batches.
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
    """Where the training stands: one objective for all rounds, and the parameters (P,)."""

    def __init__(self, objective: Objective, theta: torch.Tensor) -> None:
        self.objective, self.theta = objective, theta


@dataclass(frozen=True, eq=False)
class _Live(GradientStep):
    """A gradient step at whatever parameters the training has reached: nothing is built again."""

    place: _Place = field(kw_only=True)

    def objective(self, precision: str | None = None) -> Objective:
        """Return the training's one objective."""
        return self.place.objective

    def theta(self, objective: Objective, rng: np.random.Generator) -> torch.Tensor:
        """Return where the training stands."""
        return self.place.theta


def _fields(step: GradientStep) -> dict[str, Any]:
    return {one.name: getattr(step, one.name) for one in fields(step)}


class _Server:
    """Moves the parameters by what is released."""

    def __init__(
        self, settings: Federated, mechanism: Mechanism, place: _Place, rng: np.random.Generator
    ) -> None:
        self._settings, self._mechanism, self._place, self._rng = settings, mechanism, place, rng
        self._state = settings.optimiser.start(place.theta)

    def take(self, releases: Sequence[Release], records: int) -> None:
        """Make one step along the mean of ``releases``, about so many ``records``."""
        place, optimiser = self._place, self._settings.optimiser
        mean = _mean(place.objective, releases) if releases else self._silence()
        if releases and isinstance(releases[0], Update):
            # The clients have taken their steps: their change is added as it is.
            optimiser, mean = SGD(1.0, optimiser.momentum), -mean
        elif releases and self._settings.poisson:
            mean = mean * (records / self._settings.records)
        place.theta, self._state = optimiser.step(place.theta, mean, self._state)
        if not bool(place.theta.isfinite().all()):
            raise DivergedError(f"the parameters went to infinity: {optimiser.describe()}")

    def _silence(self) -> torch.Tensor:
        """Return what is heard where by chance no record takes part: noise at most."""
        from exhume.defences import DPSGD

        shape = tuple(self._place.theta.shape)
        if not isinstance(self._mechanism, DPSGD):
            return self._place.theta.new_zeros(shape)
        deviation = self._mechanism.deviation(self._settings.records)
        return self._place.objective.tensor(self._rng.normal(0.0, deviation, shape))


def _mean(objective: Objective, releases: Sequence[Release]) -> torch.Tensor:
    import torch

    if not all(isinstance(one, Gradient | Update) for one in releases):
        raise InputError("federated training takes gradients and updates, and nothing else")
    return torch.stack([objective.flat(dict(one.arrays())) for one in releases]).mean(dim=0)


def once(
    mechanism: Mechanism, change: Callable[[GradientStep], GradientStep] | None = None
) -> Mechanism:
    """Return the mechanism as a client runs it in one round, with another step where given.

    ``Rounds`` stands for what an adversary has after several rounds, which are the training's own.
    """
    from exhume.defences import Defence, Rounds

    if isinstance(mechanism, GradientStep):
        return mechanism if change is None else change(mechanism)
    if isinstance(mechanism, Rounds):
        return once(mechanism.inner, change)
    if isinstance(mechanism, LocalSteps | Aggregate):
        # What a step becomes stays a step, which the type of ``once`` can't say.
        return replace(mechanism, client=cast(Any, once(mechanism.client, change)))
    if isinstance(mechanism, Defence):
        return cast(Mechanism, replace(cast(Any, mechanism), inner=once(mechanism.inner, change)))
    raise InputError(
        f"federated training takes what sends gradients or updates, not {type(mechanism).__name__}"
    )


def at_parameters(mechanism: Mechanism, parameters: Mapping[str, Array]) -> Mechanism:
    """Return the mechanism of one round with its gradient step at ``parameters``."""
    return once(mechanism, lambda step: replace(step, state=parameters))
