"""How a victim is trained with a defence in the loop, to tell what the defence costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from exhume.config.base import Count, Positive, Table


class UtilityTable(Table):
    """The budget of a training, the same for every defence.

    In each of ``rounds`` the server hears ``clients`` releases about ``batch_size`` records each
    (as many as the release has, where not said), out of ``records`` to train on; ``test`` others
    measure accuracy. Nobody in the threat model has any of them. ``poisson`` draws each round's
    records by chance. ``start``: new parameters from each seed, or those of the release. With
    ``path`` "opacus" settings with dp-sgd alone are trained by Opacus. ``delta`` is what a private
    training's ε is told at.
    """

    rounds: Count
    learning_rate: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    records: Count
    test: Count
    batch_size: Count | None = None
    clients: Count = 1
    seeds: Count = 3
    poisson: bool = False
    start: Literal["initialisation", "released"] = "initialisation"
    path: Literal["exhume", "opacus"] = "exhume"
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    @model_validator(mode="after")
    def _one_sample(self) -> UtilityTable:
        if self.poisson and self.clients > 1:
            raise ValueError("poisson sampling is of all records together: clients = 1")
        if self.path == "opacus" and not self.poisson:
            raise ValueError("path = 'opacus' samples by chance: poisson = true goes with it")
        return self
