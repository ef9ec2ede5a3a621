"""The figures of a finished study: its stored summary, and its declaration."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.runlog.codec import decoded, encoded, finite
from exhume.runlog.setting import Setting
from exhume.runlog.strongest import by_error, filled
from exhume.runlog.summary import Bracket, Row, Summary
from exhume.stats.differences import Sample, of_correlation
from exhume.stats.differences import own as own_interval
from exhume.stats.interval import LEVEL, Interval, point
from exhume.studies.scores import ORACLE, Scores

RECORD = "study.json"
"""The file in a run folder that names its paper and part."""
STRONGEST = "strongest attack"
"""In place of an attack's name: the one with the smallest mean error on the setting in question."""
_ROUNDING = 1e-9
"""A mean squared error that no eye and no 8-bit pixel can tell from 0."""
_COMPUTED = ("ceiling", "theorem_2", "kappa", "floor")
"""Quantities that are computed, not estimated from targets."""


@dataclass(frozen=True)
class StudyReading:
    """One number of a summary, by the name of its quantity, setting and attack.

    Of an attack: ``mse.mean`` (or another metric's ``mean``, ``median``, ``q05`` …), ``success``,
    ``labels``, ``seconds`` (per target), ``mse~lpips`` (a rank correlation). Of a setting:
    ``oracle`` (mean squared error of the nearest known record), ``percentile-1`` and so on,
    ``blind`` (of the blind guess), ``utility``, ``training_utility``, ``loss_auc``,
    ``membership_auc``, ``membership_advantage``, ``ceiling``, ``kappa``, ``theorem_2``,
    ``fixed_set``, ``shadow_targets``, ``pool``, ``targets``, ``floor`` (on the root mean squared
    error, by noise), ``strongest`` (the mean error of the strongest attack, by the rule of
    ``runlog.strongest``), ``final_loss`` (training loss at the end of trainings with its defences),
    ``authenticity.measured.area`` (of the ROC curve) and other results on candidates. ``ended``
    False also reads the result of an attack of which no trial finished.
    """

    quantity: str
    setting: str
    attack: str | None = None
    ended: bool = True


@dataclass(frozen=True, eq=False)
class StudyRun:
    """A finished part: its declaration, the run's ``summary.json``, and every target's scores."""

    paper: str
    part: str
    scale: str
    size: Mapping[str, Any]
    seed: int
    changes: tuple[str, ...]
    summary: Summary
    scores: Scores = field(default_factory=dict)

    def read(self, reading: StudyReading, attack: str = "") -> float | None:
        """Return the number that a reading names; None if the run has none."""
        setting = self._setting(reading.setting)
        if setting is None:
            return None
        if reading.quantity == "strongest":
            strongest = self.strongest(reading.setting)
            return None if strongest is None else strongest.error
        found = _of_setting(reading.quantity, setting, self._bracket(reading.setting))
        if found is None and reading.quantity == "blind":
            return self._of_attack("mse.mean", reading.setting, "oblivious")
        if found is not None:
            return found
        own = self.named(reading.attack or attack, reading.setting)
        return self._of_attack(reading.quantity, reading.setting, own, ended=reading.ended)

    def named(self, attack: str, *settings: str) -> str:
        """Return an attack's name, also if it is given as the strongest on settings.

        That is the one with the smallest mean error over all of them: of those that worked on each;
        of all that left something if none did; "" if none left anything.
        """
        if attack != STRONGEST:
            return attack
        found: dict[str, list[Row]] = {}
        for row in self.summary.rows:
            if row.setting in settings and not row.baseline and row.error is not None:
                found.setdefault(row.attack, []).append(row)
        whole = {name: rows for name, rows in found.items() if len(rows) == len(settings)}
        good = {name: rows for name, rows in whole.items() if all(map(worked, rows))}
        errors = {
            name: sum(row.error or 0.0 for row in rows) for name, rows in (good or whole).items()
        }
        return min(errors, key=lambda name: errors[name], default="")

    def row(self, reading: StudyReading, attack: str = "") -> Row | None:
        """Return the results of the attack that a reading is about; None if it is about none."""
        setting = self._setting(reading.setting)
        of_all = ("strongest", "blind")
        if setting is None or reading.quantity in of_all or reading.quantity in _COMPUTED:
            return None
        if _of_setting(reading.quantity, setting, self._bracket(reading.setting)) is not None:
            return None
        name = self.named(reading.attack or attack, reading.setting)
        return self._row(reading.setting, name)

    def sample(self, reading: StudyReading, attack: str = "") -> Sample | None:
        """Return the targets' scores behind a reading; None if it is not computed from them."""
        setting = self._setting(reading.setting)
        if setting is None or self.read(reading, attack) is None:
            return None
        quantity = reading.quantity
        name = self.named(reading.attack or attack, reading.setting)
        if quantity == "final_loss":
            return Sample.of(np.array(_losses(setting)), unit=1, statistic="mean")
        if quantity == "oracle":
            quantity, name = "mse.mean", ORACLE
        elif quantity == "blind":
            quantity, name = "mse.mean", "oblivious"
        metric, _, statistic = quantity.partition(".")
        numbers = self._scores(reading.setting, metric).get(name)
        if quantity == "strongest":
            numbers, statistic = self._strongest_errors(reading.setting), "mean"
        if numbers is None or not statistic:
            return None
        return Sample.of(numbers, unit=setting.batch or 1, statistic=statistic)

    def interval(
        self, reading: StudyReading, attack: str = "", *, confidence: float = LEVEL
    ) -> Interval | None:
        """Return the interval of a reading over the targets; None if there is none."""
        sample = self.sample(reading, attack)
        if sample is not None:
            return own_interval(sample, confidence=confidence)
        value = self.read(reading, attack)
        if value is None:
            return None
        if reading.quantity in _COMPUTED:
            return point(value)
        if reading.quantity.endswith(".area"):
            stored = self._of_area(reading)
            return None if stored is None else stored.at(confidence)
        row = self.row(reading, attack)
        if reading.quantity == "success" and row is not None and row.success is not None:
            rate = row.success
            return Interval(rate.rate, rate.low, rate.high, rate.confidence).at(confidence)
        if "~" not in reading.quantity or row is None:
            return None
        metric = reading.quantity.partition("~")[0]
        scores = self.scores.get(reading.setting, {}).get(row.attack, {})
        count = sum(v is not None for v in scores.get(metric, ()))
        return of_correlation(value, count, confidence=confidence)

    def _of_area(self, reading: StudyReading) -> Interval | None:
        """Return the interval that was stored beside an area under a ROC curve."""
        table = reading.quantity.removesuffix("area")
        area, low, high = (
            self.read(StudyReading(f"{table}{name}", reading.setting))
            for name in ("area", "low", "high")
        )
        return None if area is None or low is None or high is None else Interval(area, low, high)

    @property
    def data(self) -> str:
        """The data set of the declared size; "" where every setting has tables of its own."""
        return str(self.size["data"])

    def settings(self) -> list[str]:
        """Return the names of the settings that were run."""
        return [setting.name for setting in self.summary.settings]

    def command(self) -> str:
        """Return the command that makes this run."""
        extra = "".join(f" --set {change}" for change in self.changes)
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"exhume study {self.paper} {self.part} --scale {self.scale}{seed}{extra}"

    def plain(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {
            "paper": self.paper,
            "part": self.part,
            "scale": self.scale,
            "size": dict(self.size),
            "seed": self.seed,
            "changes": list(self.changes),
            "summary": finite(encoded(self.summary)),
            "scores": self.scores,
        }

    def _setting(self, name: str) -> Setting | None:
        return next((one for one in self.summary.settings if one.name == name), None)

    def _bracket(self, setting: str) -> Bracket | None:
        return next((b for b in self.summary.brackets if b.setting == setting), None)

    def strongest(self, setting: str) -> Row | None:
        """Return the strongest attack on a setting by its error, including guesses."""
        found = by_error([row for row in self.summary.rows if row.setting == setting])
        return found[0] if found else None

    def _strongest_errors(self, setting: str) -> FloatArray | None:
        strongest = self.strongest(setting)
        guesses = {row.attack for row in self.summary.rows if row.baseline}
        errors = filled(self._scores(setting, "rmse"), guesses)
        return None if strongest is None else errors.get(strongest.attack)

    def _scores(self, setting: str, metric: str) -> dict[str, FloatArray]:
        """Return every attack's scores on a setting by one metric, NaN where it has none."""
        return {
            attack: np.array([np.nan if v is None else v for v in own[metric]], dtype=np.float64)
            for attack, own in self.scores.get(setting, {}).items()
            if metric in own
        }

    def _of_attack(
        self, quantity: str, setting: str, attack: str, *, ended: bool = True
    ) -> float | None:
        row = self._row(setting, attack)
        return None if row is None or (ended and not row.ran) else _of_row(quantity, row)

    def _row(self, setting: str, attack: str) -> Row | None:
        rows = (row for row in self.summary.rows if row.setting == setting)
        return next((row for row in rows if row.attack == attack), None)


def worked(row: Row) -> bool:
    """Return whether an attack reported success, its own error estimate aside, on most targets."""
    found = row.statuses
    return not found or 2 * (found.get("CONVERGED", 0) + found.get("APPROXIMATE", 0)) > row.trials


def exact(row: Row) -> bool:
    """Return whether an attack's records differ from the truth by rounding alone, on average."""
    return "mse" in row.metrics and row.metrics["mse"].mean < _ROUNDING


def _of_setting(quantity: str, setting: Setting, bracket: Bracket | None) -> float | None:
    name, _, level = quantity.partition("-")
    if quantity == "oracle":
        return _number(setting.nearest.mean_square)
    if name == "percentile":
        found = dict(zip(setting.nearest.levels, setting.nearest.mean_squares, strict=True))
        return _number(found.get(float(level)))
    if quantity == "pool":
        return float(setting.data.fixed_set + setting.data.shadow_targets)
    if quantity == "final_loss":
        numbers = _losses(setting)
        return sum(numbers) / len(numbers) if numbers else None
    if quantity == "ceiling":
        return None if bracket is None else _number(bracket.ceiling)
    if quantity == "kappa":
        return None if setting.ceiling.at is None else _number(setting.ceiling.at.kappa)
    return _by_key(encoded(setting), quantity)


def _losses(setting: Setting) -> list[float]:
    """Return the final losses of a setting's trainings, infinite for one that diverged."""
    losses = [run.training_loss for run in setting.trainings]
    return [math.inf if loss is None else loss for loss in losses]


def _by_key(plain: Any, path: str) -> float | None:
    """Return a number by its keys in ``summary.json``, tables within tables separated by dots."""
    for key in path.split("."):
        plain = plain.get(key) if isinstance(plain, dict) else None
    return _number(plain)


def _of_row(quantity: str, row: Row) -> float | None:
    if quantity == "success":
        return None if row.success is None else _number(row.success.rate)
    if quantity == "labels":
        return _number(row.labels_correct)
    if quantity == "seconds":
        return row.seconds / max(1, row.trials)
    if "~" in quantity:
        one, _, other = quantity.partition("~")
        return _number(row.correlations.get(quantity, row.correlations.get(f"{other}~{one}")))
    metric, _, which = quantity.partition(".")
    return _number(getattr(row.metrics.get(metric), which, None))


def _number(value: Any) -> float | None:
    """Return a number, or None: a summary has null for NaN and infinity."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and not math.isnan(value) else None


def shown(value: float) -> str:
    """Return a figure as papers print it.

    >>> shown(0.00891), shown(3.14e-10), shown(59000.0), shown(0.0)
    ('.0089', '3.1e-10', '59,000', '0')
    """
    if value == 0.0:
        return "0"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    if size < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    digits = 2 if size >= 1 else 4 if size < 0.1 else 3
    return f"{value:.{digits}f}".replace("0.", ".", 1) if size < 1 else f"{value:.{digits}f}"


def write_record(run: StudyRun, path: Path) -> None:
    """Write a run's figures as one JSON file, with one list of numbers per line."""
    from exhume.runtime.durable import write_bytes

    text = json.dumps(run.plain(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    lean = re.sub(r"\[\s+([^\[\]{}\"]+?)\s+\]", _one_line, text)
    write_bytes(path, (lean + "\n").encode())


def _one_line(found: re.Match[str]) -> str:
    return "[" + ", ".join(part.strip() for part in found.group(1).split(",")) + "]"


def read_record(path: Path) -> StudyRun:
    """Read a run's figures, from ``study.json`` of a run folder or a copy of it."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return StudyRun(
            plain["paper"],
            plain["part"],
            plain["scale"],
            plain["size"],
            int(plain["seed"]),
            tuple(plain["changes"]),
            decoded(Summary, plain["summary"]),
            plain.get("scores", {}),
        )
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is not a record of a study") from None
