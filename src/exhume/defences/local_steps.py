"""Sending the change of several local steps in place of one gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from exhume.protocol.defence import ListedDefence, Place
from exhume.protocol.errors import InputError
from exhume.protocol.limits import Positive, at_least
from exhume.protocol.mechanism import Mechanism
from exhume.training.batches import Batches
from exhume.training.gradient import Step
from exhume.training.local_steps import LocalSteps
from exhume.training.optimisers import SGD


@dataclass(frozen=True)
class SeveralLocalSteps(ListedDefence):
    """Sends the change of several steps; ``different`` deals the records out to them.

    The mechanism is ``LocalSteps``: these are its settings in an audit's file.
    """

    steps: Annotated[int, at_least(2)]
    learning_rate: Positive
    different: bool = False
    name: ClassVar[str] = "local-steps"
    place: ClassVar[Place] = Place.STEP

    @classmethod
    def around(cls, mechanism: Mechanism, settings: Mapping[str, Any], records: int) -> Mechanism:
        """Return the steps, each on all records or on its own part of them."""
        own, step = cls(**settings), cast(Step, mechanism)
        optimiser = SGD(own.learning_rate)
        if not own.different:
            return LocalSteps(step, optimiser, own.steps)
        if records % own.steps:
            raise InputError(
                f"{records} records can't be dealt evenly to {own.steps} local steps: take a "
                "batch_size that they divide"
            )
        return LocalSteps(step, optimiser, 1, Batches(records // own.steps, seed=0))
