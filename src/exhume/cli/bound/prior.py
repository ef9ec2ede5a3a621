"""Compute kappa from the options about the prior."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.protocol.errors import InputError
from exhume.protocol.names import no_such

if TYPE_CHECKING:
    from exhume.protocol.arrays import Array

_NEEDS = {
    "gaussian": ("dimension", "sigma", "eta"),
    "ball": ("dimension", "radius", "eta"),
    "finite": (),
    "product": ("attribute_kappas",),
    "samples": ("file", "eta"),
    "pool": ("file", "eta"),
}
_MAY_HAVE = {
    "finite": ("size", "probabilities"),
    "product": ("at_least",),
    "samples": ("confidence", "method"),
    "pool": ("method",),
}


@dataclass(frozen=True)
class PriorOptions:
    """The options as given on the command line; None if omitted."""

    kappa: float | None = None
    prior: str | None = None
    eta: float | None = None
    dimension: int | None = None
    sigma: float | None = None
    radius: float | None = None
    size: int | None = None
    probabilities: str | None = None
    attribute_kappas: str | None = None
    at_least: int | None = None
    file: Path | None = None
    confidence: float | None = None
    method: str | None = None


@dataclass(frozen=True)
class Blind:
    """Kappa and its source, in words."""

    kappa: float
    source: str
    confidence: float | None = None


PRIOR_WAYS = f"--prior with its options ({', '.join(_NEEDS)})"
KAPPA_WAYS = f"--kappa, or {PRIOR_WAYS}"


def blind_success(options: PriorOptions, ways: str = KAPPA_WAYS) -> Blind:
    """Return kappa, given or from a prior; InputError for missing or incompatible options.

    ``ways`` says in words which options a command has for it.
    """
    from exhume.bounds.checks import require_probability

    _check(options, ways)
    if options.kappa is not None:
        return Blind(require_probability("--kappa", options.kappa), "given")
    if options.prior in ("samples", "pool"):
        return _from_file(options)
    return _from_formula(options)


def _check(options: PriorOptions, ways: str) -> None:
    given = [f.name for f in fields(options) if getattr(options, f.name) is not None]
    if "kappa" in given and "prior" in given:
        raise InputError("give either --kappa or --prior (with its options), not both")
    if "kappa" not in given and "prior" not in given:
        raise InputError(f"the success of a blind guess is missing: give {ways}")
    if options.prior is None:
        allowed: tuple[str, ...] = ("kappa",)
    elif options.prior in _NEEDS:
        missing = [name for name in _NEEDS[options.prior] if name not in given]
        if missing:
            raise InputError(f"--prior {options.prior} needs {_flags(missing)}")
        allowed = ("prior", *_NEEDS[options.prior], *_MAY_HAVE.get(options.prior, ()))
    else:
        raise InputError(no_such("prior", options.prior, _NEEDS))
    extra = [name for name in given if name not in allowed]
    if extra:
        to = f"--prior {options.prior}" if options.prior else "--kappa"
        raise InputError(f"{_flags(extra)} cannot be combined with {to}")


def _from_formula(options: PriorOptions) -> Blind:
    from exhume import bounds

    dimension, eta = options.dimension or 0, _number(options.eta)
    if options.prior == "gaussian":
        sigma = _number(options.sigma)
        kappa = bounds.kappa_gaussian(dimension=dimension, sigma=sigma, eta=eta)
        return Blind(kappa, f"Gaussian prior in {dimension} dimensions, exactly")
    if options.prior == "ball":
        radius = _number(options.radius)
        kappa = bounds.kappa_uniform_ball(dimension=dimension, radius=radius, eta=eta)
        return Blind(kappa, f"uniform prior on a ball in {dimension} dimensions, exactly")
    if options.prior == "product":
        each = _numbers("--attribute-kappas", options.attribute_kappas)
        kappa = bounds.kappa_product(each, at_least=options.at_least)
        return Blind(kappa, f"{len(each)} independent attributes, exactly")
    return _from_finite(options)


def _from_finite(options: PriorOptions) -> Blind:
    from exhume import bounds

    if options.size is None and options.probabilities is None:
        raise InputError("--prior finite needs --size or --probabilities")
    if options.size is not None and options.probabilities is not None:
        raise InputError("--prior finite needs either --size or --probabilities, not both")
    if options.size is not None:
        kappa = bounds.kappa_uniform(options.size)
        return Blind(kappa, f"one of {options.size} equally likely records, named exactly")
    each = _numbers("--probabilities", options.probabilities)
    return Blind(bounds.kappa_finite(each), f"one of {len(each)} records, named exactly")


def _from_file(options: PriorOptions) -> Blind:
    from exhume import bounds

    records, eta = _records(options.file or Path()), _number(options.eta)
    method = options.method or "mean-distance"
    if options.prior == "pool":
        kappa = bounds.kappa_of_pool(records, eta=eta, method=method)
        return Blind(kappa, f"one of the {len(records)} records of the pool, an upper bound")
    confidence = 0.95 if options.confidence is None else options.confidence
    found = bounds.kappa_from_samples(records, eta=eta, confidence=confidence, method=method)
    source = f"upper {confidence:g} confidence bound from {len(records)} samples"
    return Blind(found.kappa, source, confidence)


def _records(path: Path) -> Array:
    import numpy as np

    from exhume.data.reading import explained, listed

    with explained(path, ".npy or .npz"):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        names = list(loaded.files)
        name = names[0] if len(names) == 1 else "x"
        if name not in names:
            raise InputError(f"{path} has no array x, only {listed(names)}")
        return np.asarray(loaded[name])


def _numbers(flag: str, text: str | None) -> list[float]:
    try:
        return [float(part) for part in (text or "").split(",")]
    except ValueError:
        raise InputError(f"{flag} must be comma-separated numbers, got {text!r}") from None


def _number(value: float | None) -> float:
    """Return an option whose presence ``_check`` has verified."""
    return 0.0 if value is None else value


def _flags(names: list[str]) -> str:
    return " and ".join("--" + name.replace("_", "-") for name in names)
