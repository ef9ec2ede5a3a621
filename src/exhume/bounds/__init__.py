"""Bounds: ceilings on reconstruction success here, floors on error in ``exhume.bounds.floors``.

A ceiling γ says that no attack succeeds with a larger probability, where success means coming
within a threshold at which a blind guess succeeds with probability κ. Pure functions; nothing here
needs PyTorch.
"""

from exhume.bounds.base import Binds, Ceiling, Method
from exhume.bounds.closed_form import (
    approximate_dp,
    corollary_3,
    corollary_4,
    finite_domain,
    gaussian,
    theorem_2,
    theorem_5,
)
from exhume.bounds.event import ceiling, dp_sgd, gammas, privacy_loss, rdp_curve
from exhume.bounds.guarantee import (
    from_approximate_dp,
    from_finite_domain,
    from_rdp,
    from_zcdp,
)
from exhume.bounds.membership import MembershipRisk, membership_risk
from exhume.bounds.monte_carlo import MonteCarloGamma, monte_carlo_gamma
from exhume.bounds.prior import (
    kappa_finite,
    kappa_finite_losses,
    kappa_gaussian,
    kappa_gaussian_chernoff,
    kappa_product,
    kappa_uniform,
    kappa_uniform_ball,
)
from exhume.bounds.privacy_loss import PrivacyLoss
from exhume.bounds.rdp import RenyiCurve
from exhume.bounds.samples import (
    KappaEstimate,
    kappa_from_distances,
    kappa_from_samples,
    kappa_of_pool,
)
from exhume.bounds.solve import SufficientNoise, noise_multiplier_for

__all__ = [
    "Binds",
    "Ceiling",
    "KappaEstimate",
    "MembershipRisk",
    "Method",
    "MonteCarloGamma",
    "PrivacyLoss",
    "RenyiCurve",
    "SufficientNoise",
    "approximate_dp",
    "ceiling",
    "corollary_3",
    "corollary_4",
    "dp_sgd",
    "finite_domain",
    "from_approximate_dp",
    "from_finite_domain",
    "from_rdp",
    "from_zcdp",
    "gammas",
    "gaussian",
    "kappa_finite",
    "kappa_finite_losses",
    "kappa_from_distances",
    "kappa_from_samples",
    "kappa_gaussian",
    "kappa_gaussian_chernoff",
    "kappa_of_pool",
    "kappa_product",
    "kappa_uniform",
    "kappa_uniform_ball",
    "membership_risk",
    "monte_carlo_gamma",
    "noise_multiplier_for",
    "privacy_loss",
    "rdp_curve",
    "theorem_2",
    "theorem_5",
]
