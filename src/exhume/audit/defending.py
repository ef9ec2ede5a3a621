"""Defences as a configuration lists them, put around a mechanism in order."""

from __future__ import annotations

from collections.abc import Sequence

from exhume.config.defences import DefenceTable, listed_defences
from exhume.protocol.defence import Place
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.training.gradient import Step, gradient_step


def defended(mechanism: Mechanism, tables: Sequence[DefenceTable], records: int) -> Mechanism:
    """Return the mechanism with the defences around it, the first one innermost.

    ``records`` is the number of a release's records, which local steps distribute.
    """
    for table in tables:
        _require_place(table.kind.place, table.name, mechanism)
        mechanism = table.kind.around(mechanism, table.settings(), records)
    return mechanism


def _require_place(place: Place, name: str, mechanism: Mechanism) -> None:
    """Raise InputError where a defence can't go around ``mechanism``."""
    of_gradients = (Place.STEP, Place.SENT)
    if place in of_gradients and gradient_step(mechanism) is None:
        others = ", ".join(d.name for d in listed_defences() if d.place not in of_gradients)
        raise InputError(
            f"the defence {name!r} is for gradients and updates; weights and answers take {others}"
        )
    if place is Place.STEP and not isinstance(mechanism, Step):
        raise InputError(
            f"the defence {name!r} changes a gradient step itself: it comes before those that "
            "change what is sent"
        )
