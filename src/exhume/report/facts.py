"""What a run folder says of a setting beside its records, as the report reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exhume.audit.facts import BoundPoint


@dataclass(frozen=True)
class Facts:
    """The part of a setting's facts that the report shows; what a folder lacks stays empty."""

    name: str
    title: str
    threat: tuple[str, ...] = ()
    record_shape: tuple[int, ...] = ()
    value_range: tuple[float, float] | None = None
    unit: str = ""
    nearest_mean: float | None = None
    percentile_levels: tuple[float, ...] = ()
    percentile_means: tuple[float, ...] = ()
    event: str = ""
    bound: tuple[BoundPoint, ...] = ()
    bound_at: BoundPoint | None = None
    bound_method: str = ""
    bound_binds: str = ""
    utility_name: str = ""
    utility: float | None = None
    defended: bool = False
    membership: str = ""
    truth: str = ""
    group: str = ""
    defence: str = ""

    @property
    def picture(self) -> bool:
        """Whether a record is an image: (height, width), or with 1 or 3 channels last."""
        shape = self.record_shape
        flat = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))
        return flat and min(shape[:2]) >= 4


def read_facts(plain: Mapping[str, Any]) -> Facts:
    """Return one setting's facts out of the store's plain data."""
    span, at = plain.get("value_range"), plain.get("bound_at")
    return Facts(
        name=plain["name"],
        title=plain["title"],
        threat=tuple(plain.get("threat", ())),
        record_shape=tuple(plain.get("record_shape", ())),
        value_range=None if span is None else (float(span[0]), float(span[1])),
        unit=plain.get("unit", ""),
        nearest_mean=plain.get("nearest_mean"),
        percentile_levels=tuple(plain.get("percentile_levels", ())),
        percentile_means=tuple(plain.get("percentile_means", ())),
        event=plain.get("event", ""),
        bound=tuple(_point(point) for point in plain.get("bound", ())),
        bound_at=None if at is None else _point(at),
        bound_method=plain.get("bound_method", ""),
        bound_binds=plain.get("bound_binds", ""),
        utility_name=plain.get("utility_name", ""),
        utility=plain.get("utility"),
        defended=bool(plain.get("defended", False)),
        membership=plain.get("membership", ""),
        truth=plain.get("truth", ""),
        group=plain.get("group", ""),
        defence=plain.get("defence", ""),
    )


def _point(plain: Mapping[str, float]) -> BoundPoint:
    return BoundPoint(plain["closeness"], plain["kappa"], plain["gamma"])
