"""What is released, and through which defences, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from exhume.config.base import Count, Positive, Table
from exhume.config.defences import DefenceTable


class PenaltyTable(Table):
    """``strength``·½‖θ‖² beside a summed loss, unless said otherwise."""

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
    file: Path | None = None
    answer: Literal["scores", "probabilities", "means"] = "scores"
    queries: Count | None = None
    defences: tuple[DefenceTable, ...] = ()


NETWORKS = ("mlp", "cnn", "two-layer", "lenet", "convnet", "resnet20", "resnet18")
_LINEAR = ("linear", "ridge", "logistic", "multinomial", "poisson")


def _linear_model(name: str) -> str:
    if name not in _LINEAR:
        known = ", ".join((*_LINEAR, *NETWORKS))
        raise ValueError(f"should be {known}, or your own as package.module:function")
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
    padding: Annotated[int, Field(ge=0)] = 0


class WarmUpTable(Table):
    """How the model was trained, on the shadow targets, before the gradient was taken."""

    steps: Count
    learning_rate: Positive = 0.1
    batch_size: Count = 64


class ImprintTable(Table):
    """A malicious server: a block of ``bins`` that records write themselves into."""

    bins: Annotated[int, Field(ge=4)] = 1024
    into: Literal["scores", "network"] = "scores"


def _activation(name: str) -> str:
    from exhume.models.base import Activation

    known = [one.value for one in Activation]
    if name not in known:
        raise ValueError(f"should be {', '.join(known)}")
    return name


class NetworkReleaseTable(_ReleaseTable):
    """What is released of a neural network: weights or answers, a gradient or an update.

    ``model`` is one of ours, or ``package.module:function`` of the user's own, which returns a
    torch module and is imported only with ``--trust-code``. ``batch_size``, ``warm_up``,
    ``clients``, ``imprint`` and ``batch_norm`` go with gradients and updates; ``classes`` is how
    many there are, where no records tell. ``wide_head`` units stand before a ResNet's classes, as
    Liu et al. 2024 have them (appendix F). Weights with a ``batch_size`` are trained on that many
    records, and the adversary has none of them.
    """

    kind: Literal["weights", "outputs", "gradient", "update"] = "weights"
    model: str
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
        """Whether the model is code of the user's own."""
        return ":" in self.model

    @property
    def batched(self) -> bool:
        """Whether the release is about a batch of records and nothing else."""
        return self.kind in ("gradient", "update") or self.alone

    @property
    def alone(self) -> bool:
        """Whether the weights are all there is: the adversary has no training record."""
        return self.kind == "weights" and self.batch_size is not None

    @model_validator(mode="after")
    def _of_a_batch(self) -> NetworkReleaseTable:
        own = {"batch_size", "warm_up", "clients", "batch_norm", "classes", "imprint"}
        given = own & self.model_fields_set
        if self.alone:
            given -= {"batch_size", "classes"}
        if (not self.batched or self.alone) and given:
            raise ValueError(f"{sorted(given)[0]} goes with kind = 'gradient' and 'update'")
        if self.batched and self.batch_size is None:
            raise ValueError(f"a {self.kind} needs batch_size: how many records it is about")
        if {"answer", "queries"} & self.model_fields_set and self.kind != "outputs":
            raise ValueError("answer and queries go with kind = 'outputs'")
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


def _kind_of_model(table: Any) -> str:
    """Tell linear models from networks by ``model``, so that each refuses the other's keys."""
    model = table.get("model") if isinstance(table, dict) else getattr(table, "model", None)
    network = isinstance(model, str) and (model in NETWORKS or ":" in model)
    return "network" if network else "linear"


ReleaseTable = Annotated[
    Annotated[LinearReleaseTable, Tag("linear")] | Annotated[NetworkReleaseTable, Tag("network")],
    Discriminator(_kind_of_model),
]
