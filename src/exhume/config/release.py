"""The release and its defences, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from exhume.config.base import Count, FilePath, Natural, Positive, Table
from exhume.config.defences import DefenceTable
from exhume.protocol.names import meant, no_such


class PenaltyTable(Table):
    """``strength``·½‖θ‖² added to a summed loss by default."""

    strength: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    halved: bool = True
    averaged: bool = False
    intercept: bool = False


class SolverTable(Table):
    """``exact`` or the name of a scikit-learn solver, with its tolerance and iteration limit."""

    name: str = "exact"
    tolerance: Positive | None = None
    max_iterations: Count | None = None


class _ReleaseTable(Table):
    file: FilePath | None = None
    answer: Literal["scores", "probabilities", "means"] = "scores"
    queries: Count | None = None
    defences: tuple[DefenceTable, ...] = ()

    @property
    def code(self) -> tuple[str, ...]:
        """The functions of the user's own that are imported, as package.module:function."""
        return ()

    @property
    def to_trust(self) -> tuple[str, ...]:
        """What is run of the user's own: functions, and the file of a program."""
        return self.code


_PROGRAM = ".pt2"
"""How the file of a program of torch.export ends."""
_ESTIMATOR = ".skops"
"""How the file of a fitted estimator ends."""
NETWORKS = ("mlp", "cnn", "two-layer", "lenet", "convnet", "resnet20", "resnet18")
_LINEAR = ("linear", "ridge", "logistic", "multinomial", "poisson")


def _linear_model(name: str) -> str:
    if name not in _LINEAR:
        known = (*_LINEAR, *NETWORKS)
        if (close := meant(name, known)) is not None:
            raise ValueError(f"there is no model of that name; did you mean {close!r}?")
        names = ", ".join(known)
        raise ValueError(f"should be {names}, or your own as package.module:function or .pt2")
    return name


class LinearReleaseTable(_ReleaseTable):
    """What is released: the weights or the answers of a linear model."""

    kind: Literal["weights", "outputs"] = "weights"
    model: Annotated[str, AfterValidator(_linear_model)]
    penalty: PenaltyTable = PenaltyTable()
    intercept: bool = True
    standardise: bool = False
    solver: SolverTable = SolverTable()


class ConvolutionTable(Table):
    """One convolution of a CNN."""

    filters: Count
    kernel: Count
    stride: Count = 1
    padding: Natural = 0


class WarmUpTable(Table):
    """The training of the model on the shadow targets, before the gradient is computed."""

    steps: Count
    learning_rate: Positive = 0.1
    batch_size: Count = 64


class ImprintTable(Table):
    """A malicious server: a block of ``bins`` that separates records."""

    bins: Annotated[int, Field(ge=4)] = 1024
    into: Literal["scores", "network"] = "scores"


def _activation(name: str) -> str:
    from exhume.models.base import Activation

    known = [one.value for one in Activation]
    if name not in known:
        raise ValueError(no_such("activation", name, known))
    return name


def _function_name(name: str) -> str:
    module, _, function = name.partition(":")
    if not module or not function:
        raise ValueError("should be package.module:function")
    return name


class NetworkReleaseTable(_ReleaseTable):
    """What is released of a neural network: weights or answers, a gradient or an update.

    ``model`` is a built-in one, or ``package.module:function`` of the user's own, which returns a
    torch module and is imported only with ``--trust-code``, or the ``.pt2`` file of torch.export.
    ``batch_size``, ``warm_up``, ``clients``, ``imprint`` and ``batch_norm`` go with gradients and
    updates; ``classes`` is how many there are, where no records tell. ``training`` is a loop of the
    user's own, likewise: ``train(x, y, *, seed)`` returns a torch module, or a state dict of
    ``model``'s parameters. ``wide_head`` units stand before a ResNet's classes, as Liu et al. 2024
    have them (appendix F). Weights with a ``batch_size`` are trained on that many records, and the
    adversary has none of them. A transcript has every step of the training, or one of ``every``; a
    ``recording`` is the folder that a training of the user's own left. An update is the change in
    ``file``, or with ``before`` that from one file of parameters to the other.
    """

    kind: Literal["weights", "outputs", "gradient", "update", "transcript"] = "weights"
    before: FilePath | None = None
    model: str = ""
    training: Annotated[str, AfterValidator(_function_name)] | None = None
    every: Count = 1
    recording: FilePath | None = None
    batch_size: Count | None = None
    warm_up: WarmUpTable | None = None
    clients: Count | None = None
    imprint: ImprintTable | None = None
    batch_norm: Literal["train", "eval"] = "train"
    classes: Count | None = None
    hidden: tuple[Count, ...] = (10,)
    convolutions: tuple[ConvolutionTable, ...] = (
        ConvolutionTable(filters=16, kernel=4, stride=2),
        ConvolutionTable(filters=32, kernel=4),
    )
    width: Count | None = None
    wide_head: Count | None = None
    activation: Annotated[str, AfterValidator(_activation)] | None = None
    device: str = "cpu"

    @property
    def foreign(self) -> bool:
        """Whether the model is the user's own code."""
        return ":" in self.model

    @property
    def program(self) -> Path | None:
        """The file of an exported program, where the model is one."""
        return Path(self.model) if self.model.endswith(_PROGRAM) else None

    @property
    def batched(self) -> bool:
        """Whether the release is computed on one batch of records only."""
        return self.kind in ("gradient", "update") or self.alone

    @property
    def alone(self) -> bool:
        """Whether only the weights are known: the adversary has no training record."""
        return self.kind == "weights" and self.batch_size is not None

    @property
    def to_trust(self) -> tuple[str, ...]:
        """What is run of the user's own: functions, and the file of a program."""
        programs = [self.model] if self.program is not None else []
        if self.recording is not None and not _of_this_user(self.recording):
            programs.append(str(self.recording))
        return (*self.code, *programs)

    @property
    def code(self) -> tuple[str, ...]:
        """The functions of the user's own that are imported, as package.module:function."""
        named = (self.training or "", self.model)
        return tuple(name for name in named if ":" in name)

    @model_validator(mode="after")
    def _trained_by_a_loop(self) -> NetworkReleaseTable:
        if self.training is None:
            if not self.model and self.recording is None:
                raise ValueError("model is missing: a network, or package.module:function")
            return self
        if self.kind not in ("weights", "outputs") or self.alone:
            raise ValueError(
                "training is a loop that an adversary with all other records runs again: it goes "
                "with kind = 'weights' and 'outputs', without batch_size"
            )
        if self.model and len(self.to_trust) < 2:
            raise ValueError(
                "beside training, model is the architecture of the state dict that it returns, as "
                f"package.module:function or a {_PROGRAM} file, got {self.model!r}; a loop that "
                "returns a torch module needs none"
            )
        return self

    @model_validator(mode="after")
    def _of_a_batch(self) -> NetworkReleaseTable:
        own = {"batch_size", "warm_up", "clients", "batch_norm", "classes", "imprint"}
        given = own & self.model_fields_set
        if self.alone:
            given -= {"batch_size", "classes"}
        if (not self.batched or self.alone) and given:
            key = sorted(given)[0]
            if key == "classes":
                raise ValueError(
                    "classes says how many there are where no records tell: it goes with kind = "
                    "'gradient' and 'update', and with weights alone (add batch_size, the number "
                    "of records that the model was trained on)"
                )
            raise ValueError(f"{key} goes with kind = 'gradient' and 'update'")
        if self.batched and self.batch_size is None:
            article = "an" if self.kind == "update" else "a"
            raise ValueError(f"{article} {self.kind} needs batch_size: the number of its records")
        if self.before is not None and (self.kind != "update" or self.file is None):
            raise ValueError(
                "before goes with kind = 'update': the parameters that the client received; file "
                "holds those that it sent back"
            )
        if {"answer", "queries"} & self.model_fields_set and self.kind != "outputs":
            raise ValueError("answer and queries go with kind = 'outputs'")
        return self

    @model_validator(mode="after")
    def _of_every_step(self) -> NetworkReleaseTable:
        if self.recording is not None and (self.kind != "transcript" or self.file or self.model):
            raise ValueError(
                "a recording goes with kind = 'transcript', without file and model: it has both"
            )
        if self.kind != "transcript" and "every" in self.model_fields_set:
            raise ValueError("every goes with kind = 'transcript'")
        if self.kind == "transcript" and self.defences:
            raise ValueError(
                "a transcript shows the training's own steps: what protects it is "
                "knowledge.training.clipping, not a defence around it"
            )
        return self

    @model_validator(mode="after")
    def _of_one_kind(self) -> NetworkReleaseTable:
        given = self.model_fields_set
        if self.model != "mlp" and "hidden" in given:
            raise ValueError(f"hidden goes with model = 'mlp', not with {self.model!r}")
        if self.model != "cnn" and "convolutions" in given:
            raise ValueError(f"convolutions goes with model = 'cnn', not with {self.model!r}")
        for key, models in (
            ("width", ("convnet", "resnet18", "two-layer")),
            ("wide_head", ("resnet18",)),
            ("activation", ("mlp", "cnn", "two-layer")),
        ):
            if self.model not in models and key in given:
                raise ValueError(f"{key} goes with {', '.join(models)}, not with {self.model!r}")
        return self


def _function_or_file(name: str) -> str:
    return name if name.endswith(_ESTIMATOR) else _function_name(name)


class EstimatorReleaseTable(_ReleaseTable):
    """What is released: all that fitting leaves in a scikit-learn estimator or pipeline.

    ``estimator`` is a ``.skops`` file of a fitted one, or ``package.module:function`` of the user's
    own, which returns it unfitted and is imported only with ``--trust-code``.
    """

    kind: Literal["weights"] = "weights"
    estimator: Annotated[str, AfterValidator(_function_or_file)]

    @property
    def stored(self) -> Path | None:
        """The file of a fitted estimator, where it is one."""
        return Path(self.estimator) if self.estimator.endswith(_ESTIMATOR) else None

    @property
    def code(self) -> tuple[str, ...]:
        """The function that returns the estimator."""
        return () if self.stored is not None else (self.estimator,)


def _of_this_user(folder: Path) -> bool:
    """Whether nobody else can have written what is in a folder."""
    import os

    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _kind_of_model(table: Any) -> str:
    """Separate estimators, linear models and networks: each refuses the keys of the others."""
    if isinstance(table, EstimatorReleaseTable) or (
        isinstance(table, dict) and "estimator" in table
    ):
        return "estimator"
    model = table.get("model") if isinstance(table, dict) else getattr(table, "model", None)
    loop = isinstance(table, dict) and ("training" in table or "recording" in table)
    own = isinstance(model, str) and (":" in model or model.endswith(_PROGRAM))
    network = isinstance(model, str) and (model in NETWORKS or own)
    network = network or loop or isinstance(table, NetworkReleaseTable)
    return "network" if network else "linear"


ReleaseTable = Annotated[
    Annotated[LinearReleaseTable, Tag("linear")]
    | Annotated[EstimatorReleaseTable, Tag("estimator")]
    | Annotated[NetworkReleaseTable, Tag("network")],
    Discriminator(_kind_of_model),
]
