"""The figures of a finished study: its stored summary, and what was declared for it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import InputError
from exhume.studies.intervals import Interval, Sample, of_correlation
from exhume.studies.intervals import own as own_interval
from exhume.studies.scores import ORACLE, Scores

RECORD = "study.json"
"""The file in a run folder that says which part of which paper it is."""


@dataclass(frozen=True)
class Reading:
    """One number of a summary, by the name of its quantity, setting and attack.

    Of an attack: ``mse.mean`` (or another metric's ``mean``, ``median``, ``q05`` …), ``success``,
    ``labels``, ``seconds`` (a target), ``mse~lpips`` (a rank correlation). Of a setting:
    ``oracle`` (mean squared error of the nearest known record), ``percentile-1`` and so on,
    ``blind`` (of the blind guess), ``utility``, ``training_utility``, ``loss_auc``,
    ``membership_auc``, ``membership_advantage``, ``ceiling``, ``kappa``, ``theorem_2``,
    ``fixed_set``, ``shadow_targets``, ``pool``, ``targets``, ``floor`` (that noise leaves of the
    root mean squared error), ``strongest`` (the smallest mean of that error of any attack, guesses
    among them), ``final_loss`` (training loss at the end of trainings with its defences),
    ``authenticity.measured.area`` (of the ROC curve) and what else is said of candidates.
    ``ended`` False reads what an attack left although no trial of it ran to an end.
    """

    quantity: str
    setting: str
    attack: str | None = None
    ended: bool = True


@dataclass(frozen=True, eq=False)
class Run:
    """A finished part: what was declared, the run's ``summary.json``, and every target's scores."""

    paper: str
    part: str
    scale: str
    size: Mapping[str, Any]
    seed: int
    changes: tuple[str, ...]
    summary: Mapping[str, Any]
    scores: Scores = field(default_factory=dict)

    def read(self, reading: Reading, attack: str = "") -> float | None:
        """Return the number that a reading names; None where the run has none."""
        facts = self._fact(reading.setting)
        if facts is None:
            return None
        if reading.quantity == "strongest":
            return self._strongest(reading.setting)
        found = _of_setting(reading.quantity, facts, self._bracket(reading.setting))
        if found is None and reading.quantity == "blind":
            return self._of_attack("mse.mean", reading.setting, "oblivious")
        if found is not None:
            return found
        own = reading.attack or attack
        return self._of_attack(reading.quantity, reading.setting, own, ended=reading.ended)

    def sample(self, reading: Reading, attack: str = "") -> Sample | None:
        """Return the targets' scores behind a reading; None where it is not read from them."""
        facts = self._fact(reading.setting)
        if facts is None or self.read(reading, attack) is None:
            return None
        quantity, name = reading.quantity, reading.attack or attack
        if quantity == "oracle":
            quantity, name = "mse.mean", ORACLE
        elif quantity == "strongest":
            quantity, name = "rmse.mean", self._strongest_attack(reading.setting)
        elif quantity == "blind":
            quantity, name = "mse.mean", "oblivious"
        metric, _, statistic = quantity.partition(".")
        values = self.scores.get(reading.setting, {}).get(name, {}).get(metric)
        if values is None or not statistic:
            return None
        numbers = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        return Sample.of(numbers, unit=int(facts.get("batch") or 1), statistic=statistic)

    def interval(self, reading: Reading, attack: str = "") -> Interval | None:
        """Return the 95 % interval of a reading over the targets; None where there is none."""
        sample = self.sample(reading, attack)
        if sample is not None:
            return own_interval(sample)
        value = self.read(reading, attack)
        if value is None:
            return None
        if reading.quantity.endswith(".area"):
            return self._of_area(reading)
        if "~" not in reading.quantity:
            return None
        metric = reading.quantity.partition("~")[0]
        scores = self.scores.get(reading.setting, {}).get(reading.attack or attack, {})
        return of_correlation(value, sum(v is not None for v in scores.get(metric, ())))

    def _of_area(self, reading: Reading) -> Interval | None:
        """Return the interval that was stored beside an area under a ROC curve."""
        table = reading.quantity.removesuffix("area")
        ends = [self.read(Reading(f"{table}{end}", reading.setting)) for end in ("low", "high")]
        return None if ends[0] is None or ends[1] is None else Interval(ends[0], ends[1])

    def settings(self) -> list[str]:
        """Return the names of the settings that were run."""
        return [str(facts["name"]) for facts in self.summary["settings"]]

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
            "summary": dict(self.summary),
            "scores": self.scores,
        }

    def _fact(self, setting: str) -> Mapping[str, Any] | None:
        found = [facts for facts in self.summary["settings"] if facts["name"] == setting]
        return found[0] if found else None

    def _bracket(self, setting: str) -> Mapping[str, Any]:
        found = [b for b in self.summary["brackets"] if b["setting"] == setting]
        return found[0] if found else {}

    def _strongest(self, setting: str) -> float | None:
        return min(self._errors(setting).values(), default=None)

    def _strongest_attack(self, setting: str) -> str:
        errors = self._errors(setting)
        return min(errors, key=lambda attack: errors[attack], default="")

    def _errors(self, setting: str) -> dict[str, float]:
        """Return the mean error that each attack left, guesses among them."""
        rows = [row for row in self.summary["rows"] if row["setting"] == setting]
        found = {str(row["attack"]): _of_row("rmse.mean", row) for row in rows}
        return {attack: error for attack, error in found.items() if error is not None}

    def _of_attack(
        self, quantity: str, setting: str, attack: str, *, ended: bool = True
    ) -> float | None:
        rows = [
            row
            for row in self.summary["rows"]
            if row["setting"] == setting and row["attack"] == attack
        ]
        if not rows or (ended and not rows[0]["ran"]):
            return None
        return _of_row(quantity, rows[0])


def _of_setting(
    quantity: str, facts: Mapping[str, Any], bracket: Mapping[str, Any]
) -> float | None:
    name, _, level = quantity.partition("-")
    if quantity == "oracle":
        return _number(facts.get("nearest_mse"))
    if name == "percentile":
        levels: Sequence[float] = facts["percentile_levels"]
        place = [i for i, one in enumerate(levels) if one == float(level)]
        return _number(facts["percentile_mse"][place[0]]) if place else None
    if quantity == "pool":
        return float(facts["fixed_set"] + facts["shadow_targets"])
    if quantity == "final_loss":
        losses = [run["training_loss"] for run in facts.get("trainings", ())]
        # A training that diverged has no loss.
        numbers = [math.inf if loss is None else float(loss) for loss in losses]
        return sum(numbers) / len(numbers) if numbers else None
    if name.startswith("authenticity."):
        return _deep(facts, quantity)
    if quantity == "ceiling":
        return _number(bracket.get("ceiling"))
    if quantity == "kappa":
        return None if facts["bound_at"] is None else _number(facts["bound_at"]["kappa"])
    return _number(facts.get(quantity))


def _deep(facts: Mapping[str, Any], path: str) -> float | None:
    """Return a number from tables within tables, by a path with dots."""
    found: Any = facts
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return _number(found)


def _of_row(quantity: str, row: Mapping[str, Any]) -> float | None:
    if quantity == "success":
        return None if row["success"] is None else _number(row["success"]["rate"])
    if quantity == "labels":
        return _number(row["labels_correct"])
    if quantity == "seconds":
        return float(row["seconds"]) / max(1, int(row["trials"]))
    if "~" in quantity:
        one, _, other = quantity.partition("~")
        known = row["correlations"]
        return _number(known.get(quantity, known.get(f"{other}~{one}")))
    metric, _, which = quantity.partition(".")
    return _number(row["metrics"].get(metric, {}).get(which))


def _number(value: Any) -> float | None:
    return None if value is None or isinstance(value, str | bool) else float(value)


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


def write_record(run: Run, path: Path) -> None:
    """Write a run's figures as one JSON file, a list of numbers a line."""
    from exhume.audit.durable import write_bytes

    text = json.dumps(run.plain(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    lean = re.sub(r"\[\s+([^\[\]{}\"]+?)\s+\]", _one_line, text)
    write_bytes(path, (lean + "\n").encode())


def _one_line(found: re.Match[str]) -> str:
    return "[" + ", ".join(part.strip() for part in found.group(1).split(",")) + "]"


def read_record(path: Path) -> Run:
    """Read a run's figures, from ``study.json`` of a run folder or a copy of it."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return Run(
            plain["paper"],
            plain["part"],
            plain["scale"],
            plain["size"],
            int(plain["seed"]),
            tuple(plain["changes"]),
            plain["summary"],
            plain.get("scores", {}),
        )
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is no record of a study") from None
