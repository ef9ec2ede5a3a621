"""How a network was trained, as tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from exhume.config.base import Count, Natural, Positive, Table

Share = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]

OPTIMISERS = ("sgd", "adam", "adamw", "rmsprop")
SCHEDULES = ("constant", "step", "cosine", "one-cycle")

_OF_OPTIMISER = {
    "momentum": ("sgd", "rmsprop"),
    "nesterov": ("sgd",),
    "beta1": ("adam", "adamw"),
    "beta2": ("adam", "adamw"),
    "epsilon": ("adam", "adamw", "rmsprop"),
    "smoothing": ("rmsprop",),
    "centred": ("rmsprop",),
}
_OF_SCHEDULE = {
    "every": ("step",),
    "after": ("step",),
    "factor": ("step",),
    "over": ("cosine",),
    "lowest": ("cosine",),
    "rising": ("one-cycle",),
    "start_divisor": ("one-cycle",),
    "end_divisor": ("one-cycle",),
    "momentum": ("one-cycle",),
    "linear": ("one-cycle",),
    "per": ("constant", "step", "cosine"),
    "warm_up": ("constant", "step", "cosine"),
    "warm_up_from": ("constant", "step", "cosine"),
}


class ClippingTable(Table):
    """DP-GD: records' gradients clipped to ``norm``, noise of norm · ``noise_multiplier`` added."""

    norm: Positive
    noise_multiplier: NotNegative


class ScheduleTable(Table):
    """The learning rate over a training, as in ``torch.optim.lr_scheduler``.

    ``per`` says whether the rate changes with each step or each epoch; ``warm_up`` counts those.
    """

    name: Literal["constant", "step", "cosine", "one-cycle"]
    per: Literal["step", "epoch"] = "epoch"
    warm_up: Count | None = None
    warm_up_from: Probability = 1.0 / 3.0
    every: Count | None = None
    after: tuple[Count, ...] = ()
    factor: Positive = 0.1
    over: Count | None = None
    lowest: NotNegative = 0.0
    rising: Probability = 0.3
    start_divisor: Positive = 25.0
    end_divisor: Positive = 1e4
    momentum: tuple[Share, Share] | Literal[False] = (0.95, 0.85)
    linear: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> ScheduleTable:
        _require_owner(self, _OF_SCHEDULE, "schedule.name", self.name)
        if self.name == "step" and (self.every is None) == (not self.after):
            raise ValueError("a schedule of steps needs every or after, one of the two")
        if self.name == "constant" and self.warm_up is None:
            raise ValueError("a constant rate needs no schedule, unless it has a warm_up")
        return self


class AugmentationTable(Table):
    """Images mirrored with probability ``flip``, and moved by up to ``crop`` pixels."""

    flip: Probability = 0.0
    crop: Natural = 0
    channels_first: bool | None = None

    @model_validator(mode="after")
    def _does_something(self) -> AugmentationTable:
        if not self.flip and not self.crop:
            raise ValueError("an augmentation needs flip or crop above 0")
        return self


class TrainingTable(Table):
    """How a network was trained; the adversary knows it. Without ``batch_size``: full batches.

    ``seed`` draws the initial parameters and the order of batches, where not the audit's does, and
    ``draw_seed`` is what ``torch.manual_seed`` was called with before the first step, for dropout
    and augmentation. ``weight_decay`` is PyTorch's default: 0.01 for adamw, 0 for the others.
    ``loss`` is for weights alone: two classes may have one output between them (logistic), and a
    number to predict has the squared error. Everywhere else the labels tell.
    """

    optimiser: Literal["sgd", "adam", "adamw", "rmsprop"] = "sgd"
    learning_rate: Positive
    momentum: Share = 0.0
    nesterov: bool = False
    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Positive = 1e-8
    smoothing: Share = 0.99
    centred: bool = False
    weight_decay: NotNegative = Field(
        default_factory=lambda given: 0.01 if given.get("optimiser") == "adamw" else 0.0
    )
    schedule: ScheduleTable | None = None
    epochs: Count
    stop_after: Count | None = None
    batch_size: Count | None = None
    poisson: bool = False
    initialisation: Literal["lecun", "glorot", "he"] = "lecun"
    clipping: ClippingTable | None = None
    gradient_norm: Positive | None = None
    label_smoothing: Share = 0.0
    class_weights: tuple[Positive, ...] | None = None
    augmentation: AugmentationTable | None = None
    precision: Literal["float32", "float64"] = "float32"
    seed: Seed | None = None
    draw_seed: Seed | None = None
    loss: Literal["cross-entropy", "logistic", "squared-error"] | None = None

    @property
    def refined(self) -> str | None:
        """Name the first key that plain steps of gradient descent on a mean loss do not have."""
        keys = (
            *("schedule", "nesterov", "stop_after", "gradient_norm", "label_smoothing"),
            *("class_weights", "augmentation", "draw_seed"),
        )
        return next((key for key in keys if getattr(self, key)), None)

    @model_validator(mode="after")
    def _agrees(self) -> TrainingTable:
        _require_owner(self, _OF_OPTIMISER, "optimiser", self.optimiser)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        if self.poisson and self.batch_size is None:
            raise ValueError("poisson sampling needs a batch_size")
        parts = self.clipping is not None or self.batch_size is not None or self.refined
        if self.loss == "logistic" and (self.optimiser != "sgd" or parts):
            raise ValueError("loss = 'logistic' goes with full-batch gradient descent ('sgd')")
        return self


def _require_owner(
    table: Table, owners: dict[str, tuple[str, ...]], field: str, value: str
) -> None:
    """Refuse a key that belongs to another optimiser or schedule."""
    for key in sorted(table.model_fields_set & owners.keys()):
        if value not in owners[key]:
            known = " and ".join(repr(owner) for owner in owners[key])
            raise ValueError(f"{key} goes with {field} = {known}, not with {value!r}")
