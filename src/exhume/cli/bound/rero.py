"""``exhume bound rero`` and ``exhume bound kappa``: how often any attack can succeed."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from exhume.cli.bound import options as o
from exhume.cli.bound.kappa_table import PrivacyEpsilon, privacy_epsilon, show_table
from exhume.cli.bound.prior import PRIOR_WAYS, Blind, PriorOptions, blind_success
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from exhume.bounds import Ceiling

_MECHANISM = ("noise_multiplier", "sample_rate", "steps", "solve_for", "gamma")
_WAYS = "--noise-multiplier, --epsilon, --rho, --rdp-order with --rdp-epsilon, or --solve-for"


@dataclass(frozen=True)
class MechanismOptions:
    """The options as given on the command line; None if omitted."""

    noise_multiplier: float | None = None
    sample_rate: float | None = None
    steps: int | None = None
    solve_for: str | None = None
    gamma: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    neighbours: str | None = None
    rho: float | None = None
    rdp_order: float | None = None
    rdp_epsilon: float | None = None


@dataclass(frozen=True)
class BoundAnswer:
    """The result to print: the ceiling (None if no bound holds) and related numbers."""

    ceiling: Ceiling | None
    noise_multiplier: float | None = None
    theorem_2: float | None = None
    epsilon: PrivacyEpsilon | None = None


def rero(
    noise_multiplier: o.NoiseMultiplier = None,
    sample_rate: o.SampleRate = None,
    steps: o.Steps = None,
    solve_for: o.SolveFor = None,
    gamma: o.Gamma = None,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    neighbours: o.Neighbours = None,
    rho: o.Rho = None,
    rdp_order: o.RdpOrder = None,
    rdp_epsilon: o.RdpEpsilon = None,
    kappa: o.Kappa = None,
    prior: o.Prior = None,
    eta: o.Eta = None,
    dimension: o.Dimension = None,
    sigma: o.Sigma = None,
    radius: o.Radius = None,
    size: o.Size = None,
    probabilities: o.Probabilities = None,
    attribute_kappas: o.AttributeKappas = None,
    at_least: o.AtLeast = None,
    file: o.File = None,
    confidence: o.Confidence = None,
    method: o.SampleMethod = None,
    as_json: o.Json = False,
) -> None:
    """Print a ceiling on reconstruction: no attack succeeds with a larger probability.

    Describe the mechanism (or its privacy guarantee), and the success of a blind guess. Without
    the latter the ceiling is printed at several.
    """
    given = MechanismOptions(
        noise_multiplier, sample_rate, steps, solve_for, gamma, epsilon, delta, neighbours,
        rho, rdp_order, rdp_epsilon,
    )  # fmt: skip
    about = PriorOptions(
        kappa, prior, eta, dimension, sigma, radius, size, probabilities, attribute_kappas,
        at_least, file, confidence, method,
    )  # fmt: skip
    if given.solve_for is None and not _given(about):
        show_table(lambda at: _answer(given, about, at).ceiling, _epsilon(given), as_json)
        return
    blind = blind_success(about)
    found = replace(_answer(given, about, blind.kappa), epsilon=_epsilon(given))
    if as_json:
        typer.echo(json.dumps(_as_json(found, blind, given, about)))
    else:
        _show(found, blind)


def kappa(
    prior: o.Prior = None,
    eta: o.Eta = None,
    dimension: o.Dimension = None,
    sigma: o.Sigma = None,
    radius: o.Radius = None,
    size: o.Size = None,
    probabilities: o.Probabilities = None,
    attribute_kappas: o.AttributeKappas = None,
    at_least: o.AtLeast = None,
    file: o.File = None,
    confidence: o.Confidence = None,
    method: o.SampleMethod = None,
    as_json: o.Json = False,
) -> None:
    """Print the success of the best blind guess under a prior: kappa, which each ceiling needs."""
    about = PriorOptions(
        None, prior, eta, dimension, sigma, radius, size, probabilities, attribute_kappas,
        at_least, file, confidence, method,
    )  # fmt: skip
    blind = blind_success(about, PRIOR_WAYS)
    if as_json:
        inputs = _given(about)
        typer.echo(json.dumps({"kappa": blind.kappa, "source": blind.source, "inputs": inputs}))
    else:
        typer.echo(f"kappa {blind.kappa:.6g}  ({blind.source})")


def _epsilon(given: MechanismOptions) -> PrivacyEpsilon | None:
    """Return ε of a mechanism in the usual terms; None for a guarantee, which is already one."""
    from exhume import bounds

    if not given.noise_multiplier:
        return None
    rate = 1.0 if given.sample_rate is None else given.sample_rate
    steps = 1 if given.steps is None else given.steps
    return privacy_epsilon(bounds.dp_sgd(given.noise_multiplier, rate, steps), given.delta)


def _answer(given: MechanismOptions, about: PriorOptions, kappa: float) -> BoundAnswer:
    ways = [
        given.solve_for is not None or given.noise_multiplier is not None,
        given.epsilon is not None,
        given.rho is not None,
        given.rdp_order is not None or given.rdp_epsilon is not None,
    ]
    if sum(ways) != 1:
        raise InputError(f"give exactly one of {_WAYS}")
    if not ways[0]:
        _refuse(given, _MECHANISM, "--noise-multiplier")
    if not ways[1]:
        _refuse(given, ("neighbours",), "--epsilon")
    if not ways[0] and not ways[1]:
        _refuse(given, ("delta",), "--epsilon or --noise-multiplier")
    if ways[0]:
        return _from_mechanism(given, kappa)
    return BoundAnswer(_from_guarantee(given, about, kappa))


def _refuse(given: MechanismOptions, names: tuple[str, ...], needed: str) -> None:
    for name in names:
        if getattr(given, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} can only be used with {needed}")


def _from_mechanism(given: MechanismOptions, kappa: float) -> BoundAnswer:
    from exhume import bounds

    rate = 1.0 if given.sample_rate is None else given.sample_rate
    steps = 1 if given.steps is None else given.steps
    noise = given.noise_multiplier
    if given.solve_for is not None:
        if given.solve_for != "noise-multiplier":
            raise InputError(f"--solve-for must be noise-multiplier, got {given.solve_for!r}")
        if noise is not None or given.gamma is None:
            raise InputError(
                "--solve-for noise-multiplier needs --gamma, without --noise-multiplier"
            )
        solved = bounds.noise_multiplier_for(given.gamma, kappa, sample_rate=rate, steps=steps)
        return BoundAnswer(solved.ceiling, noise_multiplier=solved.noise_multiplier)
    if given.gamma is not None:
        raise InputError("--gamma can only be used with --solve-for noise-multiplier")
    event = bounds.dp_sgd(0.0 if noise is None else noise, rate, steps)
    curve = bounds.rdp_curve(event)
    published = None if curve is None else curve.theorem_2(kappa)
    return BoundAnswer(bounds.ceiling(event, kappa), theorem_2=published)


def _from_guarantee(given: MechanismOptions, about: PriorOptions, kappa: float) -> Ceiling:
    from exhume import bounds

    if given.rho is not None:
        return bounds.from_zcdp(given.rho, kappa)
    if given.epsilon is None:
        if given.rdp_order is None or given.rdp_epsilon is None:
            raise InputError("--rdp-order and --rdp-epsilon must be given together")
        return bounds.from_rdp(given.rdp_order, given.rdp_epsilon, kappa)
    delta = 0.0 if given.delta is None else given.delta
    if given.neighbours not in (None, "remove", "replace"):
        raise InputError(f"--neighbours must be remove or replace, got {given.neighbours!r}")
    records = _domain(about)
    if given.neighbours == "replace" and delta == 0.0 and records is not None:
        return bounds.from_finite_domain(given.epsilon, records, kappa)
    return bounds.from_approximate_dp(given.epsilon, delta, kappa)


def _domain(about: PriorOptions) -> int | None:
    """Return the number of records of a finite prior, or None."""
    if about.probabilities is not None:
        return len(about.probabilities.split(","))
    return about.size


def _given(options: MechanismOptions | PriorOptions) -> dict[str, float | int | str]:
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None
    }


def _as_json(
    found: BoundAnswer, blind: Blind, given: MechanismOptions, about: PriorOptions
) -> dict[str, object]:
    ceiling = found.ceiling
    answer: dict[str, object] = {
        "gamma": 1.0 if ceiling is None else ceiling.gamma,
        "method": "none" if ceiling is None else ceiling.method.value,
        "kappa": blind.kappa,
        "kappa_source": blind.source,
        "binds": None if ceiling is None else ceiling.binds.value,
        "detail": "no bound holds" if ceiling is None else ceiling.detail,
        "inputs": {**_given(given), **_given(about)},
    }
    if found.theorem_2 is not None:
        answer["theorem_2"] = found.theorem_2
    if found.epsilon is not None:
        answer["epsilon"], answer["delta"] = found.epsilon.epsilon, found.epsilon.delta
    if found.noise_multiplier is not None:
        answer["noise_multiplier"] = found.noise_multiplier
    return answer


def _show(found: BoundAnswer, blind: Blind) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    ceiling = found.ceiling
    if found.noise_multiplier is not None:
        table.add_row(
            "noise multiplier", f"{found.noise_multiplier:.5g}", "the smallest that suffices"
        )
    if ceiling is None:
        table.add_row("gamma", "none", "no bound holds: this is not differentially private")
    else:
        table.add_row("gamma", f"{ceiling.gamma:.5g}", f"{ceiling.method.value}: {ceiling.detail}")
    table.add_row("kappa", f"{blind.kappa:.5g}", blind.source)
    if found.theorem_2 is not None:
        table.add_row("for comparison", f"{found.theorem_2:.5g}", "Theorem 2 through Rényi DP")
    if found.epsilon is not None:
        usual = f"at delta {found.epsilon.delta:g}, the guarantee in the usual terms"
        table.add_row("epsilon", f"{found.epsilon.epsilon:.5g}", usual)
    console.print(table)
    console.print()
    console.print(_in_words(ceiling, blind))


def _in_words(ceiling: Ceiling | None, blind: Blind) -> str:
    if ceiling is None:
        return (
            "Proven limit: none. Nothing limits what an attack can rebuild: without noise there is "
            "no guarantee."
        )
    return (
        f"No attack comes within the threshold with a probability above {_percent(ceiling.gamma)}; "
        f"a blind guess succeeds with {_percent(blind.kappa)}. "
        f"This binds {ceiling.binds.value}."
        + (f" It holds with {_percent(blind.confidence)} confidence." if blind.confidence else "")
    )


def _percent(probability: float) -> str:
    # Three digits would round a probability close to 1 up to 1.
    return f"{100.0 * probability:.{3 if probability < 0.995 else 5}g} %"
