"""The tables [data] and [knowledge]: where records come from, and what the adversary has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from exhume.config.base import Count, FilePath, Natural, Table
from exhume.config.columns import ColumnTables
from exhume.config.training import TrainingTable


class DataTable(Table):
    """The source of the records, and how many the model and the adversary have.

    Default ``shadow_targets``: none with a fixed set; with batches 200, or half of the remaining
    records if that is less. ``shadow_targets_from`` names another data set that the shadow targets
    come from; its classes get the model's own numbers in turn. The model was first trained on
    ``before`` public records, in the same way, and its training starts from there. ``whole``
    includes the data set's test records. ``shrink`` k makes images smaller: k × k pixels become
    their mean. ``columns`` says what columns of a table are, where their cells do not.
    """

    name: str | None = None
    whole: bool = False
    shrink: Count = 1
    file: FilePath | None = None
    label: str | None = None
    classes: tuple[int, ...] | None = None
    fixed_set: Annotated[int, Field(ge=2)] | None = None
    shadow_targets: Natural | None = None
    shadow_targets_from: str | None = None
    before: Natural = 0
    units: Literal["raw", "fixed-set"] = "raw"
    columns: ColumnTables = ()

    @model_validator(mode="after")
    def _one_source(self) -> DataTable:
        if (self.name is None) == (self.file is None):
            raise ValueError("give either a name or a file")
        return self


Columns = tuple[Natural | str, ...]
Half = Literal["upper-half", "lower-half", "left-half", "right-half"]


def _columns_or_half(value: object) -> str:
    return "half" if isinstance(value, str) else "columns"


def _none_or_several(count: int) -> int:
    """One candidate would be the target."""
    if count < 0 or count == 1:
        raise ValueError("should be 0 (no list) or at least 2")
    return count


class KnowledgeTable(Table):
    """What the adversary has in addition to the training algorithm and the fixed set.

    ``attributes`` are the known values of the target: columns by number or name, or half of an
    image. ``training`` goes with networks. ``initial``: whether it knows the initial parameters, or
    the file with them; ``order``: whether it knows the order of the mini-batches, or the file with
    it; ``draws``: whether it knows what dropout and augmentation drew. Of a release from a file it
    knows none of the three unless that is said here, or by a seed of the training. ``batch_norm``:
    whether it knows the statistics of a gradient's batch. ``record_shape`` is needed if no records
    determine it. ``seed`` is known of a loop where true (the audit's) or a number; by default each
    of its trainings has a secret one. With a transcript it has ``candidates``, a list that holds
    the target: its length, or its file. With 0 it has no list, and knows of the target what its own
    records show.
    """

    labels: bool = False
    attributes: Annotated[
        Annotated[Columns, Tag("columns")] | Annotated[Half, Tag("half")],
        Discriminator(_columns_or_half),
    ] = ()
    fixed_set: FilePath | None = None
    shadow_targets: FilePath | None = None
    record_shape: tuple[Count, ...] | None = None
    batch_norm: bool = False
    value_range: tuple[float, float] | None = None
    training: TrainingTable | None = None
    initial: bool | FilePath = True
    order: bool | FilePath = True
    draws: bool = True
    seed: bool | Annotated[int, Field(ge=0, lt=2**31)] = False
    candidates: Annotated[int, AfterValidator(_none_or_several)] | FilePath = 10
