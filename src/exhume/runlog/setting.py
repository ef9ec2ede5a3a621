"""What is measured once per setting, in addition to its trials."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.protocol.images import channels_are_first
from exhume.runlog.authenticity import Authenticity
from exhume.runlog.table_columns import TableColumn


@dataclass(frozen=True)
class AuditedData:
    """The number of records of each kind, and the shape of a record.

    ``unit`` is the unit of distances, in words. ``candidates`` is the length of the adversary's
    list that holds the target; success is then naming it. With ``one_training`` all targets were in
    the same training, and share its noise. ``columns`` are the names of a table's values, where
    they are known; ``schema`` describes the columns of a table. ``left_out`` rows of the data are
    neither known nor targets; ``rows`` says what became of each.
    """

    fixed_set: int = 0
    shadow_targets: int = 0
    targets: int = 0
    record_shape: tuple[int, ...] = ()
    value_range: tuple[float, float] | None = None
    unit: str = ""
    candidates: int = 0
    one_training: bool = False
    columns: tuple[str, ...] = ()
    schema: tuple[TableColumn, ...] = ()
    left_out: int = 0
    rows: str = ""

    @property
    def picture(self) -> bool:
        """Whether a record is an image: (height, width), or with 1 or 3 channels."""
        shape = self.record_shape
        shape = (*shape[1:], shape[0]) if channels_are_first(shape) else shape
        flat = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))
        return flat and min(shape[:2]) >= 4


@dataclass(frozen=True)
class NearestKnown:
    """The mean distance from a target to the nearest record that the adversary had.

    ``means`` are the mean distances at each percentile of ``levels``; ``mean_square`` and
    ``mean_squares`` are mean squared errors, as papers report them.
    """

    mean: float | None = None
    mean_square: float | None = None
    levels: tuple[float, ...] = ()
    means: tuple[float, ...] = ()
    mean_squares: tuple[float, ...] = ()


@dataclass(frozen=True)
class BoundPoint:
    """The ceiling at one closeness: at most ``gamma``, where a blind guess reaches ≤ ``kappa``."""

    closeness: float
    kappa: float
    gamma: float


@dataclass(frozen=True)
class KappaPoint:
    """The ceiling where a blind guess succeeds with chance ``kappa``."""

    kappa: float
    gamma: float


@dataclass(frozen=True)
class CanaryOutcome:
    """What one training with canaries proves: ε is at least ``lower`` at ``delta`` (95 %).

    ``gaussian`` is the limit for a Gaussian mechanism; ``right`` of ``guesses`` guesses were right.
    """

    lower: float
    gaussian: float
    delta: float
    right: int
    guesses: int
    canaries: int


@dataclass(frozen=True)
class CeilingCurve:
    """The limit for every attack over a range of closeness; ``at`` is the requested closeness.

    ``event`` is the privacy event of the mechanism. Without a bound there are no points, and
    ``note`` says why.
    """

    event: str = ""
    private: bool = False
    points: tuple[BoundPoint, ...] = ()
    at: BoundPoint | None = None
    method: str = ""
    binds: str = ""
    note: str = ""
    prior_samples: int = 0
    theorem_2: float | None = None
    over_kappa: tuple[KappaPoint, ...] = ()
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class ErrorFloor:
    """No attack named in ``binds`` has a smaller root mean squared error than ``value``."""

    value: float | None = None
    binds: str = ""
    note: str = ""


@dataclass(frozen=True)
class ModelQuality:
    """Accuracy (or R²) on other records and on training records, and the AUC of losses.

    ``loss_auc`` is the probability that a training record has a smaller loss than another record:
    the membership test that needs only the model (Yeom et al. 2018), as in Balle et al. 2022, Table
    IX. It asks about any training record, not about the target alone. ``chance`` is the accuracy of
    always naming the most frequent class, on the same other records.
    """

    name: str = ""
    value: float | None = None
    training_value: float | None = None
    loss_auc: float | None = None
    chance: float | None = None

    @property
    def useless(self) -> bool:
        """Whether the model is measured, and no better than a constant answer."""
        constant = self.chance if self.name == "accuracy" else 0.0
        return self.value is not None and constant is not None and self.value <= constant


@dataclass(frozen=True)
class MembershipOutcome:
    """The result of the membership game, in words and in numbers; None if it was not played."""

    text: str = ""
    test: str = ""
    advantage: float | None = None
    auc: float | None = None


@dataclass(frozen=True)
class VictimTraining:
    """One training with the defence in the loop, from one seed.

    Losses are means over the training and the test records, ``accuracy`` the share of test records
    classified rightly (None in a regression); all None where the training ``diverged``. ``epsilon``
    at ``delta`` is the whole training's guarantee for a record, None for no guarantee.
    """

    seed: int
    training_loss: float | None
    test_loss: float | None
    accuracy: float | None
    diverged: bool = False
    rounds: int = 0
    seconds: float = 0.0
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Setting:
    """One setting of a run: its threat model in words, and everything that was measured of it.

    ``group`` and ``defence`` place it in a grid, ``batch`` is the number of targets per release.
    ``liu_rate`` is the rate of Liu et al. 2024, Table 1, over that of no defence. ``truth`` names
    the file with the targets. ``trainings`` are in the order of their seeds; ``authenticity`` is
    None if no candidates were judged.
    """

    name: str
    title: str = ""
    threat: tuple[str, ...] = ()
    group: str = ""
    defence: str = ""
    defended: bool = False
    batch: int | None = None
    data: AuditedData = AuditedData()
    nearest: NearestKnown = NearestKnown()
    ceiling: CeilingCurve = CeilingCurve()
    floor: ErrorFloor = ErrorFloor()
    liu_rate: float | None = None
    model: ModelQuality = ModelQuality()
    membership: MembershipOutcome = MembershipOutcome()
    truth: str = ""
    trainings: tuple[VictimTraining, ...] = ()
    authenticity: Authenticity | None = None
    canaries: CanaryOutcome | None = None
