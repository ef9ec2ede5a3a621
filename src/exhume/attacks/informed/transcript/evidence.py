"""The exact log-likelihood of each candidate given a transcript, summed over the steps."""

from __future__ import annotations

import numpy as np

from exhume.attacks.informed.transcript.watched import Rest
from exhume.protocol.arrays import FloatArray
from exhume.protocol.records import Records

_NO_NOISE = 1e-4
"""The noise if there is none, relative to the candidates' median norm; rounding is smaller."""


def log_ratios(rest: Rest, candidates: Records, weight: float = 1.0) -> FloatArray:
    """Return log P(transcript | candidate) − log P(transcript | no record), (candidates,).

    A step's ratio is exp((⟨g, o⟩ − ‖g‖²/2) / s²). Here g is the candidate's clipped gradient, o is
    the step's sum without the known records, and s is the noise. If a record takes part with
    probability q, the ratio is the mixture 1 − q + q·ratio (Hayes, Mahloujifar, Balle 2023). The
    logs of the steps add up: each step depends on the earlier ones only through the parameters, and
    these are known.
    """
    return np.asarray(ratios_by_step(rest, candidates, weight).sum(axis=0))


def ratios_by_step(rest: Rest, candidates: Records, weight: float = 1.0) -> FloatArray:
    """Return each step's log-ratio, (steps, candidates)."""
    return sampled(_ratios_of_members(rest, candidates, weight), rest.rules.rates[:, None])


def taking_part(rest: Rest, candidates: Records, weight: float = 1.0) -> FloatArray:
    """Return the probability that a candidate took part in each step, (steps, candidates)."""
    from scipy.special import expit

    rates = rest.rules.rates[:, None]
    with np.errstate(divide="ignore"):
        odds = np.log(rates) - np.log1p(-rates)
    return np.asarray(expit(odds + _ratios_of_members(rest, candidates, weight)))


def _ratios_of_members(rest: Rest, candidates: Records, weight: float) -> FloatArray:
    """Return each step's log-ratio if the candidate took part in it, (steps, candidates)."""
    products, squares = matched(rest, candidates, weight)
    floor = _NO_NOISE * float(np.sqrt(np.median(squares)))
    noise = np.maximum(rest.deviations, floor or 1.0)[:, None]
    return np.asarray((products - 0.5 * squares) / noise**2)


def sampled(ratios: FloatArray, rates: FloatArray) -> FloatArray:
    """Return the log-ratios of records that take part with probability ``rates``."""
    with np.errstate(divide="ignore"):
        out, there = np.log1p(-rates), np.log(rates)
    return np.asarray(np.where(rates < 1.0, np.logaddexp(out, there + ratios), ratios))


def matched(rest: Rest, candidates: Records, weight: float) -> tuple[FloatArray, FloatArray]:
    """Return ⟨g, o⟩ and ‖g‖² of every candidate's clipped gradient, (steps, candidates)."""
    from exhume.derivatives.record_gradients import record_gradients

    objective = rest.objective
    x = objective.tensor(candidates.x)
    y = objective.responses(rest.training.responses(candidates.labels))
    products, squares = [], []
    for step, (theta, value) in enumerate(zip(rest.thetas, rest.values, strict=True)):
        each = record_gradients(objective, theta, x, y)
        weights = x.new_full((len(x),), weight)
        share = each.shares(objective.tensor(rest.rules.norms[step]), weights)
        products.append((share * each.along(value)).sum(dim=1).double().cpu().numpy())
        squares.append((share.square() * each.squares).sum(dim=1).double().cpu().numpy())
    return np.stack(products), np.stack(squares)
