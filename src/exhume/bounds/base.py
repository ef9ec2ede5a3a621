"""A ceiling on reconstruction success, and the attacks that it binds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from exhume.bounds.checks import require_probability


class Binds(Enum):
    """Which attacks a ceiling binds. The value is the text of a report."""

    EVERY_ATTACK = (
        "every attack on a target drawn from the prior that kappa describes, "
        "even one that knows the mechanism and all the other records"
    )
    EXACT_ATTACKS = (
        "every attack that has to name the record exactly, out of a finite domain, "
        "even one that knows the mechanism and all the other records"
    )


class Method(Enum):
    """How a ceiling was computed. The value is its short name in output."""

    GAUSSIAN = "gaussian"
    """Closed form of the Gaussian mechanism without subsampling: exact."""
    PLD = "pld"
    """Exact, from the privacy-loss distribution, up to a discretisation that errs upwards."""
    RDP = "rdp"
    """From Rényi differential privacy by data processing, both directions."""
    APPROXIMATE_DP = "approximate-dp"
    """From (epsilon, delta) alone."""
    FINITE_DOMAIN = "finite-domain"
    """From epsilon alone, for exact reconstruction out of a finite domain."""
    THEOREM_2 = "theorem-2"
    """Balle et al. 2022, Theorem 2, from Rényi differential privacy."""
    COROLLARY_4 = "corollary-4"
    """Balle et al. 2022, Corollary 4, from zero-concentrated differential privacy."""
    NO_LEAK = "no-leak"
    """The release does not depend on the target at all: a blind guess is the best there is."""


@dataclass(frozen=True)
class Ceiling:
    """A ceiling on reconstruction success: no attack that it ``binds`` succeeds more often.

    ``gamma`` in [0, 1] bounds the probability that a reconstruction comes within the threshold. The
    probability is over the target's prior and the mechanism's random draws. A blind guess succeeds
    at the threshold with probability ``kappa`` (Balle et al. 2022, Definition 2: the release is
    (eta, gamma)-ReRo). ``detail`` says in words what the number rests on.
    """

    gamma: float
    kappa: float
    method: Method
    binds: Binds = Binds.EVERY_ATTACK
    detail: str = ""

    def __post_init__(self) -> None:
        require_probability("kappa", self.kappa)
        require_probability("gamma", self.gamma)
