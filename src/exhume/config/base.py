"""What all tables of a configuration have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Table(BaseModel):
    """A TOML table: unknown keys are refused, and 3 is no "3"."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
