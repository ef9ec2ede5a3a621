"""The common base of all tables of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _possible(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a file name can't contain a NUL character")
    return path


_MOST = 10**9
"""More epochs, records or steps than that are a slip of the keyboard."""

Count = Annotated[int, Field(ge=1, le=_MOST)]
Natural = Annotated[int, Field(ge=0, le=_MOST)]
FilePath = Annotated[Path, AfterValidator(_possible)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Table(BaseModel):
    """A TOML table: unknown keys are refused, and 3 is not "3"."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
