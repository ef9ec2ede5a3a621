"""How much larger theory expects the error to be under a defence: the rates of Liu et al. 2024."""

from __future__ import annotations

from exhume.bounds.floors import liu
from exhume.defences import (
    ActivationDropout,
    Clipping,
    Defence,
    GradientDropout,
    Noise,
    undefended,
)
from exhume.mechanism import Mechanism
from exhume.training.gradient import Aggregate, GradientStep, LocalSteps


def relative_rate(mechanism: Mechanism, records: int) -> float | None:
    """Return a defence's upper rate over that of none (Liu et al. 2024, Table 1).

    For one defence around a gradient of ``records`` records, or local steps; None for several, and
    where the table has no upper rate or one that depends on the gradient (DP-SGD, pruning). Rates
    are for two-layer networks and up to constants; in a ratio width and dimension cancel. The
    paper's gradient is a sum: noise on a mean counts as often as there are records.
    """
    network = liu.Network(dimension=1, width=1, batch=records)
    found = _rates(mechanism, network, records)
    plain = liu.no_defence(network).upper
    if found is None or found.upper is None or plain is None:
        return None
    return found.upper / plain


def _rates(mechanism: Mechanism, network: liu.Network, records: int) -> liu.Rates | None:
    if isinstance(mechanism, GradientStep):
        return liu.no_defence(network)
    if isinstance(mechanism, LocalSteps) and isinstance(mechanism.client, GradientStep):
        return liu.local_aggregation(network)
    if isinstance(mechanism, Aggregate) and isinstance(mechanism.client, GradientStep):
        # The batch of the release is that of all clients already.
        return liu.no_defence(network)
    if not isinstance(mechanism, Defence) or mechanism.inner is not undefended(mechanism):
        return None
    if not isinstance(mechanism.inner, GradientStep):
        return None
    match mechanism:
        case Noise():
            return liu.gradient_noise(network, records * mechanism.size)
        case Clipping():
            return liu.gradient_clipping(network, 1.0)
        case GradientDropout() | ActivationDropout():
            return liu.dropout(network, mechanism.rate)
    return None
