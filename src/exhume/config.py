"""An audit as a TOML file says it. Unknown keys are refused; names live here and nowhere else."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from exhume.errors import InputError

Count = Annotated[int, Field(ge=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PenaltyTable(_Table):
    """``strength``·½‖θ‖² beside a summed loss, unless said otherwise."""

    strength: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    halved: bool = True
    averaged: bool = False
    intercept: bool = False


class SolverTable(_Table):
    """``exact`` or the name of a scikit-learn solver, with its tolerance and iteration limit."""

    name: str = "exact"
    tolerance: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_iterations: Count | None = None


class RoundingTable(_Table):
    """Round every released number."""

    name: Literal["rounding"]
    decimals: Annotated[int, Field(ge=0, le=17)]


class OutputPerturbationTable(_Table):
    """Gaussian noise on the parameters, calibrated to what one record can change."""

    name: Literal["output-perturbation"]
    noise_multiplier: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    norm_bound: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NoiseTable(_Table):
    """Gaussian noise of a stated size on every released number; no guarantee follows."""

    name: Literal["noise"]
    size: Annotated[float, Field(gt=0, allow_inf_nan=False)]


DefenceTable = Annotated[
    RoundingTable | OutputPerturbationTable | NoiseTable, Field(discriminator="name")
]


class DataTable(_Table):
    """Where the records come from, and how many the model and the adversary have."""

    name: str | None = None
    file: Path | None = None
    label: str | None = None
    classes: tuple[int, ...] | None = None
    fixed_set: Annotated[int, Field(ge=2)] | None = None
    shadow_targets: Annotated[int, Field(ge=0)] = 0
    units: Literal["raw", "fixed-set"] = "raw"

    @model_validator(mode="after")
    def _one_source(self) -> DataTable:
        if (self.name is None) == (self.file is None):
            raise ValueError("give either a name or a file")
        return self


class _ReleaseTable(_Table):
    kind: Literal["weights", "outputs"] = "weights"
    file: Path | None = None
    answer: Literal["scores", "probabilities", "means"] = "scores"
    queries: Count | None = None
    defences: tuple[DefenceTable, ...] = ()


_LINEAR = ("linear", "ridge", "logistic", "multinomial", "poisson")


def _linear_model(name: str) -> str:
    if name not in _LINEAR:
        known = ", ".join((*_LINEAR, "mlp", "cnn"))
        raise ValueError(f"should be {known}, or your own as package.module:function")
    return name


class LinearReleaseTable(_ReleaseTable):
    """What is released: the weights or the answers of a linear model."""

    model: Annotated[str, AfterValidator(_linear_model)]
    penalty: PenaltyTable = PenaltyTable()
    intercept: bool = True
    standardise: bool = False
    solver: SolverTable = SolverTable()


class ConvolutionTable(_Table):
    """One convolution of a CNN."""

    filters: Count
    kernel: Count
    stride: Count = 1
    padding: Annotated[int, Field(ge=0)] = 0


class NetworkReleaseTable(_ReleaseTable):
    """What is released: the weights or the answers of a neural network.

    ``model`` is ``mlp``, ``cnn``, or ``package.module:function`` of the user's own, which returns a
    torch module and is imported only with ``--trust-code``.
    """

    model: str
    hidden: tuple[Count, ...] = (10,)
    convolutions: tuple[ConvolutionTable, ...] = (
        ConvolutionTable(filters=16, kernel=4, stride=2),
        ConvolutionTable(filters=32, kernel=4),
    )
    activation: Literal[
        "elu", "relu", "leaky-relu", "tanh", "sigmoid", "softplus", "gelu", "silu"
    ] = "elu"
    device: str = "cpu"

    @property
    def foreign(self) -> bool:
        """Whether the model is code of the user's own."""
        return ":" in self.model

    @model_validator(mode="after")
    def _of_one_kind(self) -> NetworkReleaseTable:
        given = self.model_fields_set
        if self.model != "mlp" and "hidden" in given:
            raise ValueError(f"hidden goes with model = 'mlp', not with {self.model!r}")
        if self.model != "cnn" and "convolutions" in given:
            raise ValueError(f"convolutions goes with model = 'cnn', not with {self.model!r}")
        if self.foreign and "activation" in given:
            raise ValueError("activation goes with 'mlp' and 'cnn': your own code chooses its own")
        return self


def _kind_of_model(table: Any) -> str:
    """Tell linear models from networks by ``model``, so that each refuses the other's keys."""
    model = table.get("model") if isinstance(table, dict) else getattr(table, "model", None)
    network = isinstance(model, str) and (model in ("mlp", "cnn") or ":" in model)
    return "network" if network else "linear"


ReleaseTable = Annotated[
    Annotated[LinearReleaseTable, Tag("linear")] | Annotated[NetworkReleaseTable, Tag("network")],
    Discriminator(_kind_of_model),
]


class ClippingTable(_Table):
    """DP-GD: records' gradients cut to ``norm``, noise of norm · ``noise_multiplier`` added."""

    norm: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    noise_multiplier: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TrainingTable(_Table):
    """How a network was trained; the adversary knows it. Without ``batch_size``: full batches."""

    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    epochs: Count
    batch_size: Count | None = None
    poisson: bool = False
    initialisation: Literal["lecun", "glorot", "he"] = "lecun"
    clipping: ClippingTable | None = None
    precision: Literal["float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _agrees(self) -> TrainingTable:
        if self.optimiser == "adam" and self.momentum:
            raise ValueError("momentum goes with optimiser = 'sgd'; Adam has its own")
        if self.poisson and self.batch_size is None:
            raise ValueError("poisson sampling needs a batch_size")
        return self


class KnowledgeTable(_Table):
    """What the adversary has beside the training algorithm and the fixed set.

    ``training`` goes with networks. ``initial``: whether it knows where that training started, or
    the file with those parameters; ``order``: whether it knows the order of the mini-batches.
    """

    labels: bool = False
    attributes: tuple[Annotated[int, Field(ge=0)], ...] = ()
    fixed_set: Path | None = None
    shadow_targets: Path | None = None
    value_range: tuple[float, float] | None = None
    training: TrainingTable | None = None
    initial: bool | Path = True
    order: bool = True


def _printable(name: str) -> str:
    """A name stands in tables, in XML and in one-line errors."""
    if not name.isprintable():
        raise ValueError("a name must be printable and on one line")
    return name


class SettingTable(_Table):
    """One threat model: data, release and knowledge."""

    name: Annotated[str, Field(min_length=1, max_length=60), AfterValidator(_printable)] = "audit"
    title: str = ""
    targets: Count | None = None
    """How many targets this setting has, where not as many as [audit] says."""
    data: DataTable | None = None
    release: ReleaseTable
    knowledge: KnowledgeTable = KnowledgeTable()

    @model_validator(mode="after")
    def _training_with_networks(self) -> SettingTable:
        network, known = isinstance(self.release, NetworkReleaseTable), self.knowledge
        if network and known.training is None:
            raise ValueError("a network needs knowledge.training: optimiser, learning_rate, epochs")
        if not network and {"training", "initial", "order"} & known.model_fields_set:
            raise ValueError("knowledge.training, initial and order go with networks")
        if isinstance(known.initial, Path) and self.release.file is None:
            raise ValueError("knowledge.initial as a file goes with release.file")
        return self

    @model_validator(mode="after")
    def _simulated_or_given(self) -> SettingTable:
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


class AuditTable(_Table):
    """How much to run, and what counts as success."""

    attacks: tuple[str, ...] | None = None
    targets: Count = 50
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    metrics: tuple[str, ...] = ()
    closeness: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    truth: Path | None = None


class Config(_Table):
    """A whole audit: settings × attacks × targets."""

    setting: tuple[SettingTable, ...]
    audit: AuditTable = AuditTable()

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


def load(path: Path) -> Config:
    """Read an audit's TOML file; paths in it are relative to it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {error}") from None
    return parse(text, folder=path.parent, source=str(path))


def parse(text: str, *, folder: Path, source: str) -> Config:
    """Read an audit from TOML text. One setting may stand at the top level."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}") from None
    try:
        return Config.model_validate(_completed(tables, folder))
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except ValidationError as error:
        raise InputError(f"{source}: {_explained(error)}") from None


def _completed(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Gather a setting at the top level, turn arrays into tuples and anchor relative paths."""
    top = {key: tables.pop(key) for key in ("data", "release", "knowledge") if key in tables}
    if top and "setting" in tables:
        raise InputError("give [[setting]] tables or one setting at the top level, not both")
    if "setting" not in tables:
        tables["setting"] = [top]
    if not isinstance(tables["setting"], list):
        raise InputError("'setting' must be a list of tables: write [[setting]] above each")
    completed: dict[str, Any] = _frozen(tables)
    for setting in completed["setting"]:
        if isinstance(setting, dict):
            _anchor(setting.get("data"), "file", folder)
            _anchor(setting.get("release"), "file", folder)
            _anchor(setting.get("knowledge"), "fixed_set", folder)
            _anchor(setting.get("knowledge"), "shadow_targets", folder)
            _anchor(setting.get("knowledge"), "initial", folder)
    _anchor(completed.get("audit"), "truth", folder)
    return completed


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _anchor(table: Any, key: str, folder: Path) -> None:
    if isinstance(table, dict) and isinstance(table.get(key), str):
        table[key] = folder / table[key]


def _explained(error: ValidationError) -> str:
    """One line: the first thing that is wrong, which key, which value, and how many more."""
    errors = error.errors()
    first = errors[0]
    # The kinds of model are pydantic's own word for a choice: they are no key of the file.
    keys = [str(part) for part in first["loc"] if part not in ("linear", "network")]
    where = ".".join(keys).removeprefix("setting.0.") or "the file"
    if first["type"] == "extra_forbidden":
        text = f"unknown key {where!r}"
    elif first["type"] == "missing":
        text = f"{where!r} is missing"
    else:
        message = first["msg"].removeprefix("Value error, ")
        value = first["input"]
        shown = "" if isinstance(value, dict) else f", got {value!r}"
        text = f"{where}: {message[:1].lower()}{message[1:]}{shown}"
    more = len(errors) - 1
    return text + (f" (and {more} more)" if more else "")
