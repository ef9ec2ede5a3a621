"""Tables of a setting: starts of searches, the victim's training, options of single attacks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from exhume.config.base import Count, Positive, Table

Part = Annotated[float, Field(ge=0, le=1)]


class StartTable(Table):
    """Begin searches at (1 − noise) · (truth · x + (1 − truth) · s) + noise · u.

    x are the training records, s shadow targets of the same classes, and u is uniform over the
    value range (Runkel et al. 2024, equation 10). With ``deviation``, u is Gaussian with that
    deviation around the shadow targets' mean value. ``truth`` above 0 is not an attack: it asks
    whether a search would stay at the right answer. The default begins at records that the
    adversary has.
    """

    truth: Part = 0.0
    noise: Part = 0.0
    deviation: Annotated[float, Field(gt=0)] | None = None


class UtilityTable(Table):
    """The budget of a training, the same for every defence.

    In each of ``rounds`` the server hears ``clients`` releases about ``batch_size`` records each
    (as many as the release has, where not said), out of ``records`` to train on; ``test`` others
    measure accuracy. Nobody in the threat model has any of them. ``poisson`` draws each round's
    records by chance. ``start``: new parameters from each seed, or those of the release. With
    ``path`` "opacus" settings with dp-sgd alone are trained by Opacus. A private training's ε
    is reported at ``delta``.
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


class OptionsTable(Table):
    """An attack's own settings; which keys there are, the attack knows."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    attack: str

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        return dict(self.model_extra or {})


def _listed(tables: Any) -> Any:
    """Take ``[options.ridge]`` for a table that says of which attack it is."""
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        return tables
    return tuple({"attack": name, **table} for name, table in tables.items())


Options = Annotated[tuple[OptionsTable, ...], BeforeValidator(_listed)]
"""Tables by attacks' names, ``[options.ridge]``; a tuple, since a configuration is hashed."""
