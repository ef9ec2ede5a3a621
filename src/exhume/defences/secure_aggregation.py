"""Sending the mean over several clients only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from exhume.protocol.defence import ListedDefence, Place
from exhume.protocol.limits import at_least
from exhume.protocol.mechanism import Mechanism
from exhume.training.local_steps import Aggregate


@dataclass(frozen=True)
class SecureAggregation(ListedDefence):
    """Sends the mean of several clients' releases only; the records are dealt to them.

    The mechanism is ``Aggregate``: these are its settings in an audit's file.
    """

    clients: Annotated[int, at_least(2)]
    name: ClassVar[str] = "secure-aggregation"
    place: ClassVar[Place] = Place.SENT

    @classmethod
    def around(cls, mechanism: Mechanism, settings: Mapping[str, Any], records: int) -> Mechanism:
        """Return the mean over clients that each do ``mechanism``."""
        return Aggregate(mechanism, cls(**settings).clients)
