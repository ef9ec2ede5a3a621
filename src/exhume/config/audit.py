"""A whole audit as tables: settings, what the adversary knows in each, and how much to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from exhume.config.base import Count, FilePath, Natural, Positive, Table
from exhume.config.data_and_knowledge import DataTable, KnowledgeTable
from exhume.config.defences import DefenceTable
from exhume.config.release import EstimatorReleaseTable, NetworkReleaseTable, ReleaseTable
from exhume.config.setting_tables import Options, StartTable, UtilityTable


def _printable(name: str) -> str:
    """A name appears in tables, in XML and in one-line errors."""
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
    """The number of targets of this setting; default: that of [audit]."""
    attacks: tuple[str, ...] | None = None
    """The attacks that run on it; default: those of [audit]."""
    grid: Grid = ()
    """Defences to compare by name: the setting is audited without them and with each in turn."""
    group: str = ""
    """The name of its grid, if it belongs to one."""
    defence: str = ""
    """The defence of the grid that it has; empty for none."""
    utility: UtilityTable | None = None
    """The training of the victim with the defence in the loop, to measure its cost."""
    start: StartTable | None = None
    """Where searches for records start, to study the influence of the start."""
    data: DataTable | None = None
    release: ReleaseTable
    knowledge: KnowledgeTable = KnowledgeTable()
    options: Options = ()
    truth: FilePath | None = None
    """The true records of this setting's release; default: those of [audit]."""

    @property
    def start_file(self) -> Path | None:
        """The file of the parameters that a training began with, where there is one."""
        before = getattr(self.release, "before", None)
        initial = self.knowledge.initial
        return before or (initial if isinstance(initial, Path) else None)

    @property
    def order_file(self) -> Path | None:
        """The file of the order of the mini-batches, where there is one."""
        return self.knowledge.order if isinstance(self.knowledge.order, Path) else None

    @property
    def recording(self) -> Path | None:
        """The folder of a recorded training, where the release is one."""
        release = self.release
        return release.recording if isinstance(release, NetworkReleaseTable) else None

    @property
    def batch(self) -> int | None:
        """The number of records of a release that is computed on one batch only."""
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
            raise ValueError("group and defence are set by a grid: give only grid")
        if self.grid and self.release.file is not None:
            raise ValueError("a release from a file cannot have a grid: its defences are fixed")
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
        own = {"training", "initial", "order", "draws"}
        if not network and own & known.model_fields_set:
            raise ValueError("knowledge.training, initial, order and draws go with networks")
        loop = isinstance(self.release, NetworkReleaseTable) and self.release.training is not None
        if loop:
            return self._with_a_loop()
        if "seed" in known.model_fields_set:
            raise ValueError(
                "knowledge.seed is that of a loop, release.training; the seed of a training that "
                "is described is knowledge.training.seed"
            )
        if (
            network
            and self.release.kind != "gradient"
            and known.training is None
            and self.recording is None
        ):
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
            raise ValueError(
                "knowledge.batch_norm and record_shape go with gradients, updates and weights "
                "alone (release.batch_size): beside a fixed set, the records tell"
            )
        return self

    def _with_a_loop(self) -> SettingTable:
        """Check a training that is a function: no other key may describe it."""
        told = {"training", "initial", "order", "draws", "batch_norm", "record_shape"}
        given = sorted(told & self.knowledge.model_fields_set)
        if given:
            raise ValueError(
                f"knowledge.{given[0]} describes a training: the loop of release.training is known "
                "as it is"
            )
        if self.knowledge.seed is True and self.release.file is not None:
            raise ValueError(
                "knowledge.seed = true is for models trained here; a file was trained with a seed "
                "of its own: give that number"
            )
        return self

    @model_validator(mode="after")
    def _candidates_with_transcripts(self) -> SettingTable:
        known, transcript = self.knowledge, self.release.kind == "transcript"
        if not transcript and "candidates" in known.model_fields_set:
            raise ValueError("knowledge.candidates goes with release.kind = 'transcript'")
        if transcript and (known.attributes or (known.labels and known.candidates != 0)):
            raise ValueError(
                "beside a transcript the adversary has candidates: knowledge.labels and attributes "
                "would tell some of them apart beforehand (labels go with candidates = 0)"
            )
        return self

    @model_validator(mode="after")
    def _start_from_a_file(self) -> SettingTable:
        known = self.knowledge
        if isinstance(known.initial, Path) and self.release.file is None:
            raise ValueError("knowledge.initial as a file goes with release.file")
        if isinstance(known.order, Path) and (
            self.release.file is None or known.training is None or not known.training.batch_size
        ):
            raise ValueError(
                "knowledge.order as a file goes with release.file and knowledge.training.batch_size"
            )
        if self.truth is not None and self.release.file is None:
            raise ValueError("truth goes with release.file; with [data], targets are drawn from it")
        if getattr(self.release, "before", None) and "initial" in known.model_fields_set:
            raise ValueError("release.before is the start: leave knowledge.initial out")
        return self

    @model_validator(mode="after")
    def _simulated_or_given(self) -> SettingTable:
        if self.batch is not None:
            return self._batch_of_its_own()
        if self.recording is not None:
            return self._recorded()
        given = self.release.file is not None
        if not given and self.knowledge.shadow_targets is not None:
            raise ValueError(
                "knowledge.shadow_targets is a file for a release from a file; with [data], "
                "data.shadow_targets is the number to set aside"
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

    def _recorded(self) -> SettingTable:
        """Check a recorded training: it has its records and its settings."""
        own = {"fixed_set", "shadow_targets", "training", "initial", "order", "seed"}
        if self.data is not None or own & self.knowledge.model_fields_set:
            raise ValueError(
                "a recording has its own records and training: leave [data], knowledge.fixed_set, "
                "shadow_targets, training, initial, order and seed out"
            )
        return self

    def _batch_of_its_own(self) -> SettingTable:
        """Check a gradient or update: only its batch is private."""
        known, given = self.knowledge, self.release.file is not None
        one = "an update" if self.release.kind == "update" else f"a {self.release.kind}"
        if known.fixed_set is not None or (self.data is not None and self.data.fixed_set):
            alone = "a model with a batch_size"
            raise ValueError(
                f"{alone if self.release.kind == 'weights' else one} has no fixed set; records "
                "that the adversary may learn from are shadow_targets"
            )
        if known.attributes and self.release.kind == "weights":
            raise ValueError("knowledge.attributes are not supported for weights of a batch")
        if given == (self.data is not None):
            raise ValueError(f"give either [data] to take {one} of, or release.file")
        if given and self.release.kind != "weights" and self.start_file is None:
            either = " (or release.before)" if self.release.kind == "update" else ""
            raise ValueError(
                f"{one} from a file needs knowledge.initial{either}: the file with the "
                "parameters at which it was taken"
            )
        return self


def _some_networks(count: int) -> int:
    """A judge learns from some networks and is measured on others, in turn."""
    if count < 0 or count in (1, 2):
        raise ValueError("should be 0 (no judge) or at least 3")
    return count


class AuditTable(Table):
    """How much to run, and what counts as success; ``title`` and ``author`` head the report."""

    title: Annotated[str, Field(max_length=120), AfterValidator(_printable)] = ""
    author: Annotated[str, Field(max_length=120), AfterValidator(_printable)] = ""
    attacks: tuple[str, ...] | None = None
    targets: Count = 50
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    metrics: tuple[str, ...] = ()
    closeness: Positive = 1.0
    membership: Natural = 0
    """Games of membership inference per setting: which of two targets was trained on?"""
    membership_test: str | None = None
    """The test that plays them; default: the strongest one that applies."""
    membership_attack: str | None = None
    """The attack whose reconstructions the test ``by-reconstruction`` uses."""
    membership_models: Count | None = None
    """Shadow models that such a test trains per candidate, where not as many as it would."""
    membership_pairs: Count = 10
    """Pairs of targets that the games are about: each needs shadow models of its own."""
    authenticity: Annotated[int, AfterValidator(_some_networks)] = 8
    """The number of the adversary's own networks for judging candidates from weights alone."""
    kappa: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The chance of a blind guess, where it is known and not measured."""
    similar: FilePath | None = None
    """Records like the targets that the chance of a blind guess is bounded from."""
    canaries: Natural = 0
    """Records of one training with canaries, which proves a lower limit on ε; a transcript's."""
    influence: bool = False
    """Observe each target during training: its gradients' norm and zeros, with the metrics."""
    truth: FilePath | None = None

    @model_validator(mode="after")
    def _one_prior(self) -> AuditTable:
        if self.kappa is not None and self.similar is not None:
            raise ValueError("give either kappa or similar, the records that it is bounded from")
        return self

    @model_validator(mode="after")
    def _test_of_a_game(self) -> AuditTable:
        if self.membership_test is not None and not self.membership:
            raise ValueError("membership_test goes with membership, the number of games")
        if not self.membership and {"membership_models", "membership_pairs"} & set(
            self.model_fields_set
        ):
            raise ValueError("membership_models and _pairs go with membership, the number of games")
        if (self.membership_attack is not None) != (self.membership_test == "by-reconstruction"):
            raise ValueError(
                "membership_attack and membership_test = 'by-reconstruction' go together"
            )
        return self


class Config(Table):
    """A whole audit: settings × attacks × targets."""

    setting: tuple[SettingTable, ...]
    audit: AuditTable = AuditTable()

    @field_validator("setting", mode="after")
    @classmethod
    def _expanded(cls, settings: tuple[SettingTable, ...]) -> tuple[SettingTable, ...]:
        """Turn every defence of a grid into a separate setting."""
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

    def truth_of(self, setting: SettingTable) -> Path | None:
        """Return the file of a setting's true records: its own, or that of the whole audit."""
        return setting.truth or self.audit.truth

    def files(self) -> list[Path]:
        """Return every file that the audit reads, in a fixed order."""
        named = [self.audit.truth, self.audit.similar]
        for setting in self.setting:
            data = None if setting.data is None else setting.data.file
            named += [data, setting.release.file, setting.knowledge.fixed_set, setting.truth]
            if isinstance(setting.release, NetworkReleaseTable):
                named += [setting.release.program]
            if isinstance(setting.release, EstimatorReleaseTable):
                named += [setting.release.stored]
            named += [setting.start_file, setting.order_file]
            recorded = setting.recording
            named += [] if recorded is None else [recorded / "recording.json"]
            named += [setting.knowledge.shadow_targets]
            listed = setting.knowledge.candidates
            named += [listed if isinstance(listed, Path) else None]
        return [path for path in named if path is not None]
