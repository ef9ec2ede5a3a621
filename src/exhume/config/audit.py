"""A whole audit as tables: settings, what the adversary knows in each, and how much to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from exhume.config.base import Count, Positive, Table
from exhume.config.defences import DefenceTable
from exhume.config.options import Options
from exhume.config.release import NetworkReleaseTable, ReleaseTable
from exhume.config.starts import StartTable
from exhume.config.utility import UtilityTable


class DataTable(Table):
    """Where the records come from, and how many the model and the adversary have.

    Where nobody says how many ``shadow_targets``, there are none beside a fixed set, and beside
    batches 200, or half of the records that are left.
    ``shadow_targets_from`` names another data set that the shadow targets come from; its classes
    are numbered round the model's own. ``before`` records, which everybody has, are what the model
    was trained on before, in the same way; it starts from there. ``whole`` takes the data set's
    test records too. ``shrink`` k makes images smaller: k × k pixels become their mean.
    """

    name: str | None = None
    whole: bool = False
    shrink: Count = 1
    file: Path | None = None
    label: str | None = None
    classes: tuple[int, ...] | None = None
    fixed_set: Annotated[int, Field(ge=2)] | None = None
    shadow_targets: Annotated[int, Field(ge=0)] | None = None
    shadow_targets_from: str | None = None
    before: Annotated[int, Field(ge=0)] = 0
    units: Literal["raw", "fixed-set"] = "raw"

    @model_validator(mode="after")
    def _one_source(self) -> DataTable:
        if (self.name is None) == (self.file is None):
            raise ValueError("give either a name or a file")
        return self


class ClippingTable(Table):
    """DP-GD: records' gradients cut to ``norm``, noise of norm · ``noise_multiplier`` added."""

    norm: Positive
    noise_multiplier: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TrainingTable(Table):
    """How a network was trained; the adversary knows it. Without ``batch_size``: full batches.

    ``seed`` draws the initial parameters and the order of batches, where not the audit's does.
    ``loss`` is for weights alone: two classes may have one output between them (logistic), and a
    number to predict has the squared error. Everywhere else the labels tell.
    """

    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    epochs: Count
    batch_size: Count | None = None
    poisson: bool = False
    initialisation: Literal["lecun", "glorot", "he"] = "lecun"
    clipping: ClippingTable | None = None
    precision: Literal["float32", "float64"] = "float32"
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    loss: Literal["cross-entropy", "logistic", "squared-error"] | None = None

    @model_validator(mode="after")
    def _agrees(self) -> TrainingTable:
        if self.optimiser == "adam" and self.momentum:
            raise ValueError("momentum goes with optimiser = 'sgd'; Adam has its own")
        if self.poisson and self.batch_size is None:
            raise ValueError("poisson sampling needs a batch_size")
        parts = self.clipping is not None or self.batch_size is not None
        if self.loss == "logistic" and (self.optimiser != "sgd" or parts):
            raise ValueError("loss = 'logistic' goes with full-batch gradient descent ('sgd')")
        return self


Columns = tuple[Annotated[int, Field(ge=0)], ...]
Half = Literal["upper-half", "lower-half", "left-half", "right-half"]


def _columns_or_half(value: object) -> str:
    return "half" if isinstance(value, str) else "columns"


class KnowledgeTable(Table):
    """What the adversary has beside the training algorithm and the fixed set.

    ``attributes`` are the target's values that it knows: columns, or half of an image.
    ``training`` goes with networks. ``initial``: whether it knows where that training started, or
    the file with those parameters; ``order``: whether it knows the order of the mini-batches;
    ``batch_norm``: whether it knows the statistics of the batch that a gradient was taken on.
    ``record_shape`` is needed where no records tell it.
    """

    labels: bool = False
    attributes: Annotated[
        Annotated[Columns, Tag("columns")] | Annotated[Half, Tag("half")],
        Discriminator(_columns_or_half),
    ] = ()
    fixed_set: Path | None = None
    shadow_targets: Path | None = None
    record_shape: tuple[Count, ...] | None = None
    batch_norm: bool = False
    value_range: tuple[float, float] | None = None
    training: TrainingTable | None = None
    initial: bool | Path = True
    order: bool = True


def _printable(name: str) -> str:
    """A name stands in tables, in XML and in one-line errors."""
    if not name.isprintable():
        raise ValueError("a name must be printable and on one line")
    return name


def _pairs(grid: object) -> object:
    return tuple(grid.items()) if isinstance(grid, dict) else grid


Grid = Annotated[tuple[tuple[str, tuple[DefenceTable, ...]], ...], BeforeValidator(_pairs)]


class SettingTable(Table):
    """One threat model: data, release and knowledge; ``options`` are attacks' settings by name."""

    name: Annotated[str, Field(min_length=1, max_length=60), AfterValidator(_printable)] = "audit"
    title: str = ""
    targets: Count | None = None
    """How many targets this setting has, where not as many as [audit] says."""
    attacks: tuple[str, ...] | None = None
    """Which attacks are run on it, where not those that [audit] says."""
    grid: Grid = ()
    """Defences to compare by name: the setting is audited without them and with each in turn."""
    group: str = ""
    """What setting of a grid it is, where it is one."""
    defence: str = ""
    """Which defence of a grid it has; empty where it has none of them."""
    utility: UtilityTable | None = None
    """How the victim is trained with the defence in the loop, where what that costs is asked."""
    start: StartTable | None = None
    """Where searches for records begin, in a study of how much depends on it."""
    data: DataTable | None = None
    release: ReleaseTable
    knowledge: KnowledgeTable = KnowledgeTable()
    options: Options = ()

    @property
    def batch(self) -> int | None:
        """How many records a release is about, where it is about a batch and nothing else."""
        if isinstance(self.release, NetworkReleaseTable) and self.release.batched:
            return self.release.batch_size
        return None

    def alternatives(self) -> tuple[SettingTable, ...]:
        """Return the setting once without and once with each defence of its grid."""
        if not self.grid:
            return (self,)
        plain = {"group": self.name, "title": self.title or self.name, "grid": ()}
        settings = [self.model_copy(update=plain)]
        for name, added in self.grid:
            release = self.release
            defended = release.model_copy(update={"defences": (*release.defences, *added)})
            own = {"name": f"{self.name}, {name}", "title": f"{plain['title']}, {name}"}
            settings.append(
                self.model_copy(update={**plain, **own, "defence": name, "release": defended})
            )
        return tuple(settings)

    @model_validator(mode="after")
    def _grid_of_its_own(self) -> SettingTable:
        for name, _ in self.grid:
            _printable(name)
            if not name or len(self.name) + len(name) > 100:
                raise ValueError(f"a defence's name must have 1 to 40 characters, got {name!r}")
        if self.grid and (self.group or self.defence):
            raise ValueError("group and defence are what a grid makes: give grid alone")
        if self.grid and self.release.file is not None:
            raise ValueError("a release from a file has the defences that it has: no grid")
        return self

    @model_validator(mode="after")
    def _start_of_a_search(self) -> SettingTable:
        release = self.release
        alone = isinstance(release, NetworkReleaseTable) and release.alone
        if self.start is not None and (not alone or self.data is None):
            raise ValueError("start goes with weights alone: release.batch_size, and [data]")
        return self

    @model_validator(mode="after")
    def _utility_of_gradients(self) -> SettingTable:
        kinds = ("gradient", "update")
        if self.utility is not None and (self.release.kind not in kinds or self.data is None):
            raise ValueError(
                "[utility] trains on gradients or updates of [data]; a released model's own "
                "accuracy is measured without it"
            )
        return self

    @model_validator(mode="after")
    def _training_with_networks(self) -> SettingTable:
        network, known = isinstance(self.release, NetworkReleaseTable), self.knowledge
        if not network and {"training", "initial", "order"} & known.model_fields_set:
            raise ValueError("knowledge.training, initial and order go with networks")
        if network and self.release.kind != "gradient" and known.training is None:
            raise ValueError("a network needs knowledge.training: optimiser, learning_rate, epochs")
        stated = None if known.training is None else known.training.loss
        if stated and not (isinstance(self.release, NetworkReleaseTable) and self.release.alone):
            raise ValueError(
                "knowledge.training.loss goes with weights alone (release.batch_size); elsewhere "
                "classes have the cross-entropy and numbers the squared error"
            )
        if self.release.kind == "gradient" and known.training is not None:
            raise ValueError("a gradient has no knowledge.training; local steps are an 'update'")
        if self.batch is None and {"batch_norm", "record_shape"} & known.model_fields_set:
            raise ValueError("knowledge.batch_norm and record_shape go with gradients and updates")
        return self

    @model_validator(mode="after")
    def _start_from_a_file(self) -> SettingTable:
        known = self.knowledge
        if isinstance(known.initial, Path) and self.release.file is None:
            raise ValueError("knowledge.initial as a file goes with release.file")
        return self

    @model_validator(mode="after")
    def _simulated_or_given(self) -> SettingTable:
        if self.batch is not None:
            return self._batch_of_its_own()
        given = self.release.file is not None
        if not given and self.knowledge.shadow_targets is not None:
            raise ValueError(
                "knowledge.shadow_targets is a file for a release from a file; beside [data], "
                "data.shadow_targets says how many to set aside"
            )
        if given and (self.data is not None or self.knowledge.fixed_set is None):
            raise ValueError(
                "a release from a file goes with knowledge.fixed_set (the records that the "
                "adversary has) and without [data]"
            )
        if not given and (self.data is None or self.knowledge.fixed_set is not None):
            raise ValueError(
                "give either [data] to train on, or release.file with knowledge.fixed_set"
            )
        return self

    def _batch_of_its_own(self) -> SettingTable:
        """Check a gradient or update: nothing of the training but the batch is private."""
        known, given = self.knowledge, self.release.file is not None
        if known.fixed_set is not None or (self.data is not None and self.data.fixed_set):
            kind = (
                "model with a batch_size" if self.release.kind == "weights" else self.release.kind
            )
            raise ValueError(
                f"a {kind} has no fixed set; records that the adversary may learn "
                "from are shadow_targets"
            )
        if known.attributes:
            raise ValueError(f"knowledge.attributes can't be told for a {self.release.kind} yet")
        if given == (self.data is not None):
            raise ValueError(
                f"give either [data] to take a {self.release.kind} of, or release.file"
            )
        if given and self.release.kind != "weights" and not isinstance(known.initial, Path):
            raise ValueError(
                f"a {self.release.kind} from a file needs knowledge.initial: the file with the "
                "parameters at which it was taken"
            )
        return self


def _some_networks(count: int) -> int:
    """A judge learns from some networks and is measured on others, in turn."""
    if count < 0 or count in (1, 2):
        raise ValueError("should be 0 (no judge) or at least 3")
    return count


class AuditTable(Table):
    """How much to run, and what counts as success."""

    attacks: tuple[str, ...] | None = None
    targets: Count = 50
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    metrics: tuple[str, ...] = ()
    closeness: Positive = 1.0
    membership: Annotated[int, Field(ge=0)] = 0
    """Games of membership inference a setting: which of two targets was trained on?"""
    authenticity: Annotated[int, AfterValidator(_some_networks)] = 8
    """Networks of the adversary's own that judge what comes out of weights alone: is it real?"""
    influence: bool = False
    """Follow each target through training: its gradients' norm and zeros, beside the metrics."""
    truth: Path | None = None


class Config(Table):
    """A whole audit: settings × attacks × targets."""

    setting: tuple[SettingTable, ...]
    audit: AuditTable = AuditTable()

    @field_validator("setting", mode="after")
    @classmethod
    def _expanded(cls, settings: tuple[SettingTable, ...]) -> tuple[SettingTable, ...]:
        """Have every defence of a grid as a setting of its own."""
        return tuple(one for setting in settings for one in setting.alternatives())

    @model_validator(mode="after")
    def _some_and_distinct(self) -> Config:
        if not self.setting:
            raise ValueError("there is no setting: nothing to audit")
        names = [setting.name for setting in self.setting]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two settings are called {twice[0]!r}: give each its own name")
        return self

    def files(self) -> list[Path]:
        """Return every file that the audit reads, in a fixed order."""
        named = [self.audit.truth]
        for setting in self.setting:
            data = None if setting.data is None else setting.data.file
            initial = setting.knowledge.initial
            named += [data, setting.release.file, setting.knowledge.fixed_set]
            named += [initial if isinstance(initial, Path) else None]
            named += [setting.knowledge.shadow_targets]
        return [path for path in named if path is not None]
