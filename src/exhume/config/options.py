"""Settings of single attacks, where not their defaults."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict

from exhume.config.base import Table


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
