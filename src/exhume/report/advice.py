"""What to do: defences that a run measured, noise that can be computed, what to measure next."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from exhume.report.numbers import counted, limit_text, percent, rate_text, utility_text
from exhume.report.verdict import Finding, finding_of, rows_of
from exhume.runlog.run import Header
from exhume.runlog.setting import Setting
from exhume.runlog.summary import Bracket, Summary

_WANTED = (0.5, 0.1, 0.05)
"""Success rates that a reader may want as the limit."""
_MOST = 4
_LEAKS = (Finding.REBUILT, Finding.PARTLY)


@dataclass(frozen=True)
class Advice:
    """One recommendation; ``toml`` can be pasted into the setting's table."""

    title: str
    text: str
    toml: str


@dataclass(frozen=True)
class _Case:
    bracket: Bracket
    setting: Setting
    finding: Finding
    table: Mapping[str, Any]
    alike: str

    @property
    def release(self) -> Mapping[str, Any]:
        found = self.table.get("release")
        return found if isinstance(found, Mapping) else {}


def advice(header: Header, summary: Summary, order: Sequence[Bracket]) -> tuple[Advice, ...]:
    """Return what follows from a run, for the worst settings first."""
    cases = _cases(header, summary, order)
    leaking = [case for case in cases if case.finding in _LEAKS and not case.setting.defended]
    found: dict[str, Advice] = {}
    for case in leaking:
        for one in (_measured(case, cases), _noise(case, cases), _withheld(case)):
            if one is not None:
                found.setdefault(one.title, one)
    return tuple(found.values())[:_MOST]


def noise_needed(gamma: float, kappa: float, times: int = 1) -> float | None:
    """Return the noise over the sensitivity of Gaussian mechanisms for a limit ``gamma``.

    Where every blind guess has at most ``kappa`` and a record takes part ``times`` times;
    γ = Φ(Φ⁻¹(κ) + √times / σ) (Balle et al. 2022 with Dong et al. 2022), rounded up to three
    digits. None if no noise reaches it.

    >>> noise_needed(0.39, 0.1), noise_needed(0.5, 0.1, 50)
    (0.998, 5.52)
    """
    if not 0 < kappa < gamma < 1:
        return None
    normal = NormalDist()
    sigma = math.sqrt(times) / (normal.inv_cdf(gamma) - normal.inv_cdf(kappa))
    unit = 10.0 ** (math.floor(math.log10(sigma)) - 2)
    return float(f"{math.ceil(sigma / unit) * unit:.3g}")


def inline(value: Any) -> str:
    """Write JSON data as a TOML value on one line; entries without a value are left out.

    >>> inline([{"name": "noise", "scale": 0.1, "seed": None}])
    '[{ name = "noise", scale = 0.1 }]'
    """
    if isinstance(value, Mapping):
        items = (f"{k} = {inline(v)}" for k, v in value.items() if v is not None)
        return f"{{ {', '.join(items)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(inline(item) for item in value)}]"
    return json.dumps(value)


def _cases(header: Header, summary: Summary, order: Sequence[Bracket]) -> list[_Case]:
    settings = {setting.name: setting for setting in summary.settings}
    tables = {table["name"]: table for table in json.loads(header.config).get("setting", ())}
    return [
        _Case(
            bracket,
            settings[bracket.setting],
            finding_of(bracket, rows_of(summary, bracket.setting)),
            tables.get(bracket.setting, {}),
            settings[bracket.setting].group
            or header.undefended.get(bracket.setting, bracket.setting),
        )
        for bracket in order
    ]


def _related(case: _Case, cases: Sequence[_Case]) -> Iterator[_Case]:
    """The settings that differ from a setting only in their defences."""
    return (one for one in cases if one.alike == case.alike and one.setting.defended)


def _measured(case: _Case, cases: Sequence[_Case]) -> Advice | None:
    """The defence under which no attack succeeded: a useful model first, then a proven limit."""
    kept = [one for one in _related(case, cases) if one.finding is Finding.NOT_REBUILT]
    if not kept or not kept[0].release.get("defences"):
        return None
    best = max(kept, key=_merit)
    before, after, cost = case.setting.model, best.setting.model, ""
    if before.value is not None and after.value is not None:
        cost = (
            f" The model without it: {utility_text(before.name, before.value, before.chance)}; "
            f"with it: {utility_text(after.name, after.value, after.chance)}, on unused records."
        )
    if after.useless:
        cost += " It protects the records, but leaves a model no better than a constant answer."
    sure = "" if _bounded(best) else " Only these attacks failed: a stronger one may succeed."
    return Advice(
        f"{case.bracket.setting}: use the defence of “{best.bracket.setting}”",
        f"Measured: attacks reached {rate_text(best.bracket.reached)} instead of "
        f"{rate_text(case.bracket.reached)}; proven limit: {limit_text(best.bracket.ceiling)}."
        f"{cost}{sure}",
        f"# in [release] of this setting\ndefences = {inline(best.release['defences'])}",
    )


def _merit(case: _Case) -> tuple[bool, bool, float]:
    model = case.setting.model
    return not model.useless, _bounded(case), model.value or 0.0


def _bounded(case: _Case) -> bool:
    return case.bracket.ceiling is not None and case.bracket.ceiling < 1.0


def _noise(case: _Case, cases: Sequence[_Case]) -> Advice | None:
    """The noise of one Gaussian mechanism that a wanted limit needs, where one fits the release."""
    fitting, steps = _gaussian(case, cases), _steps(case)
    kappa, source = _guess(case, cases)
    found = [(gamma, noise_needed(gamma, kappa, steps or 1)) for gamma in _WANTED]
    needed = [(gamma, sigma) for gamma, sigma in found if sigma is not None]
    if not needed or (fitting is None and steps is None):
        return None
    said = "; ".join(f"{percent(gamma)}: noise_multiplier = {sigma:g}" for gamma, sigma in needed)
    noise: dict[str, Any] = {"noise_multiplier": needed[0][1]}
    if fitting is None:
        how = f" The training's {counted(steps or 1, 'step')} are DP-SGD then."
        clipping = inline({"norm": 1.0, **noise})
        toml = f"# in [knowledge.training] of this setting\nclipping = {clipping}"
    else:
        name, rest = fitting
        how = ""
        defences = inline([{"name": name, **noise, **rest}])
        toml = f"# in [release] of this setting\ndefences = {defences}"
    return Advice(
        f"{case.bracket.setting}: add noise for a proven limit",
        f"Computed, for a limit on the success of every attack of {said}.{how} This holds where a "
        f"blind guess succeeds with at most κ = {percent(kappa)} ({source}). "
        f"{_cost_of_noise(case, cases, needed[0][1])}",
        toml,
    )


def _cost_of_noise(case: _Case, cases: Sequence[_Case], sigma: float) -> str:
    """Say what this run knows of the model under so much noise."""
    less = [one for one in _related(case, cases) if 0 < _noise_of(one) <= sigma]
    if any(one.setting.model.useless for one in less):
        return "In this run, less noise already left a model no better than a constant answer."
    return "What it costs the model was not measured."


def _noise_of(case: _Case) -> float:
    """The noise over the sensitivity of a setting's own Gaussian mechanism, or 0."""
    tables = case.release.get("defences") or ()
    found = [t.get("noise_multiplier") for t in tables if isinstance(t, Mapping)]
    return max((float(one) for one in found if isinstance(one, int | float)), default=0.0)


def _steps(case: _Case) -> int | None:
    """The steps of a network's training without privacy, where the file describes it."""
    known = case.table.get("knowledge")
    training = known.get("training") if isinstance(known, Mapping) else None
    if not isinstance(training, Mapping) or training.get("clipping") or case.setting.batch:
        return None
    epochs, size = training.get("epochs"), training.get("batch_size")
    if case.release.get("kind") not in ("weights", "outputs") or not isinstance(epochs, int):
        return None
    records = case.setting.data.fixed_set + 1
    return epochs * math.ceil(records / size) if isinstance(size, int) else epochs


def _guess(case: _Case, cases: Sequence[_Case]) -> tuple[float, str]:
    """The chance of a blind guess: proven of the same records, or else what was measured."""
    for one in (case, *_related(case, cases)):
        if one.setting.ceiling.at is not None:
            return one.setting.ceiling.at.kappa, "proven from this run's records"
    blind = case.bracket.blind
    high = 0.0 if blind is None else blind.high
    return high, "the upper end of what was measured; a better guess may exist"


def _gaussian(case: _Case, cases: Sequence[_Case]) -> tuple[str, dict[str, float]] | None:
    """The defence that is one Gaussian mechanism on this release, without its noise."""
    release, data = case.release, case.setting.data
    for one in _related(case, cases):
        for table in one.release.get("defences", ()):
            if isinstance(table, Mapping) and table.get("name") == "output-perturbation":
                return "output-perturbation", {"norm_bound": table.get("norm_bound", 1.0)}
    if release.get("kind") == "gradient":
        return "dp-sgd", {"norm": 1.0}
    penalty, solver = release.get("penalty") or {}, release.get("solver") or {}
    suitable = (
        release.get("model") in ("logistic", "multinomial")
        and release.get("kind") == "weights"
        and solver.get("name", "exact") == "exact"
        and penalty.get("strength", 0) > 0
        and penalty.get("intercept")
        and not release.get("standardise")
    )
    if not suitable or data.value_range is None:
        return None
    largest = max(map(abs, data.value_range))
    norm = math.sqrt(math.prod(data.record_shape) * largest**2 + 1.0)
    return "output-perturbation", {"norm_bound": math.ceil(10 * norm) / 10}


def _withheld(case: _Case) -> Advice | None:
    """What a release holds beyond the model's answers: to be withheld, and measured again."""
    release, name = case.release, case.bracket.setting
    if release.get("standardise"):
        return Advice(
            f"{name}: withhold the scaler",
            "The release holds the means and deviations of the private records. Use a scaler that "
            "was fitted on public records, and measure again without it.",
            "# in [release] of this setting\nstandardise = false",
        )
    if release.get("kind") == "transcript":
        return Advice(
            f"{name}: withhold the iterates",
            "The release holds the parameters and gradients of every step. Publish the final "
            "weights alone, and measure again: this run says nothing about them.",
            '# in [release] of this setting\nkind = "weights"',
        )
    if release.get("kind") == "outputs" and release.get("answer") == "scores":
        return Advice(
            f"{name}: withhold the scores",
            "Answer with probabilities, and measure again: this run says nothing about them.",
            '# in [release] of this setting\nanswer = "probabilities"',
        )
    return None
