"""Optimal attacks, computed or run: no ceiling may lie below them, and the exact ones lie close."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri

from exhume import bounds
from exhume.bounds import rdp
from exhume.bounds.privacy_loss import PrivacyLoss


def _optimal(prior, channel, near):
    """Success of the best attack: for every output the guess with the largest posterior mass."""
    joint = prior[:, None] * channel
    return float((near @ joint).max(axis=0).sum())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(2, 6), st.floats(0.05, 3.0))
def test_no_ceiling_is_below_the_optimal_attack(seed, records, outputs, sharpness):
    """Random finite mechanisms: every guarantee they have is computed outright, then converted."""
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(records))
    channel = np.exp(sharpness * rng.normal(size=(records, outputs)))
    channel /= channel.sum(axis=1, keepdims=True)
    reference = channel.mean(axis=0)
    losses = np.abs(np.subtract.outer(np.arange(records), np.arange(records)))
    eta = float(rng.integers(0, 2))
    success = _optimal(prior, channel, (losses <= eta).astype(float))
    kappa = bounds.kappa_finite_losses(prior, losses, eta=eta)

    ratios = np.log(channel / reference)
    epsilon = float(np.abs(ratios).max())
    ceilings = [bounds.approximate_dp(epsilon, 0.0, kappa), bounds.corollary_3(epsilon, kappa)]
    for smaller in (0.3 * epsilon, 0.7 * epsilon):
        excess = np.maximum(channel - math.exp(smaller) * reference, 0.0).sum(axis=1).max()
        shortage = np.maximum(reference - math.exp(smaller) * channel, 0.0).sum(axis=1).max()
        ceilings.append(bounds.approximate_dp(smaller, max(excess, shortage), kappa))
    for order in (1.2, 2.0, 8.0):
        there = np.log((channel**order * reference ** (1 - order)).sum(axis=1)).max()
        back = np.log((reference**order * channel ** (1 - order)).sum(axis=1)).max()
        renyi = max(0.0, there, back) / (order - 1)
        ceilings.append(float(rdp.tight(order, renyi, kappa)))
        ceilings.append(bounds.theorem_2(order, renyi, kappa))
    ceilings.append(_hockey_stick_ceiling(channel, reference, kappa))
    assert min(ceilings) >= success - 1e-12
    if eta == 0.0:
        pairs = np.log(channel[:, None] / channel[None]).max()
        assert bounds.finite_domain(float(pairs), kappa, records) >= success - 1e-12


def _hockey_stick_ceiling(channel, reference, kappa):
    """min over ε of max over records of δ(ε) + e^ε κ: the exact way, for a mechanism in a table."""
    ratios = np.log(channel / reference).ravel()
    deltas = [np.maximum(channel - math.exp(e) * reference, 0.0).sum(axis=1).max() for e in ratios]
    return float(min(1.0, (np.array(deltas) + np.exp(ratios) * kappa).min()))


def _worst_mechanism(epsilon, delta, prior, relation):
    """The best attack on the worst mechanism with a guarantee, by linear programming.

    Outputs are guesses: P_z(y) for every record z, and (for "remove") Q(y) without it.
    """
    n = len(prior)
    tables = n + (relation == "remove")
    pairs = (
        [(z, n) for z in range(n)] + [(n, z) for z in range(n)]
        if relation == "remove"
        else list(itertools.permutations(range(n), 2))
    )
    rows, limits = [], []
    for left, right in pairs:
        for size in range(1, n + 1):
            for event in itertools.combinations(range(n), size):
                row = np.zeros((tables, n))
                row[left, list(event)] = 1.0
                row[right, list(event)] -= math.exp(epsilon)
                rows.append(row.ravel())
                limits.append(delta)
    objective = np.zeros((tables, n))
    objective[range(n), range(n)] = prior
    sums = np.kron(np.eye(tables), np.ones(n))
    found = linprog(
        -objective.ravel(), A_ub=rows, b_ub=limits, A_eq=sums, b_eq=np.ones(tables), bounds=(0, 1)
    )
    assert found.success
    return -found.fun


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.05), (3.0, 0.01), (0.0, 0.2)])
@pytest.mark.parametrize("prior", [[0.5, 0.5], [0.25] * 4, [0.6, 0.3, 0.1]])
def test_approximate_dp_by_linear_programming(epsilon, delta, prior):
    worst = _worst_mechanism(epsilon, delta, np.array(prior), "remove")
    ceiling = bounds.approximate_dp(epsilon, delta, max(prior))
    assert ceiling >= worst - 1e-9
    if len(set(prior)) == 1:
        # Tight: a uniform prior has a mechanism and an attack that reach it.
        assert ceiling == pytest.approx(worst, abs=1e-7)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_finite_domain_by_linear_programming(epsilon, size):
    worst = _worst_mechanism(epsilon, 0.0, np.full(size, 1 / size), "replace")
    assert bounds.finite_domain(epsilon, 1 / size, size) == pytest.approx(worst, abs=1e-7)
    skewed = np.arange(1.0, size + 1) / np.arange(1.0, size + 1).sum()
    worst = _worst_mechanism(epsilon, 0.0, skewed, "replace")
    assert bounds.finite_domain(epsilon, skewed.max(), size) >= worst - 1e-9


def test_finite_domain_is_false_for_removal():
    """Why its epsilon must hold for replacing a record: with removal alone an attack beats it."""
    worst = _worst_mechanism(1.0, 0.0, np.full(4, 0.25), "remove")
    assert worst > bounds.finite_domain(1.0, 0.25, 4) + 0.2


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 1.0, 1), (3.0, 1.0, 9), (0.8, 0.3, 1)])
def test_two_opposite_records_reach_the_ceiling(noise, rate, steps):
    """±1 with equal chances: naming the sign of the summed release reaches the ceiling exactly."""
    rng, draws = np.random.default_rng(0), 400_000
    sampled = rng.binomial(steps, rate, size=draws)
    release = sampled + noise * math.sqrt(steps) * rng.normal(size=draws)
    success = np.mean(release > 0)
    ceiling = bounds.ceiling(bounds.dp_sgd(noise, rate, steps), 0.5).gamma
    error = math.sqrt(ceiling * (1 - ceiling) / draws)
    assert success <= ceiling + 4 * error
    assert success >= ceiling - 4 * error


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "kappa"),
    [(1.0, 0.1, 100, 0.1), (0.7, 0.05, 50, 0.02), (4.0, 1.0, 9, 0.5)],
)
def test_shortlists_reach_the_ceiling(noise, rate, steps, kappa):
    """Records with orthogonal gradients, and a guess is a shortlist holding a share κ of them.

    The best shortlist is the one with the largest likelihood ratios; with many records its success
    tends to the ceiling, whatever the mechanism.
    """
    rng, records, targets, batches = np.random.default_rng(0), 4000, 1000, 30

    def log_ratio(x):
        return np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2))).sum(axis=1)

    rates = []
    for _ in range(batches):
        others = log_ratio(noise * rng.normal(size=(records, steps)))
        present = rng.random((targets, steps)) < rate
        ratios = log_ratio(present + noise * rng.normal(size=(targets, steps)))
        last_listed = np.sort(others)[-round(kappa * records)]
        rates.append(np.mean(ratios > last_listed))
    success, error = np.mean(rates), np.std(rates, ddof=1) / math.sqrt(batches)
    ceiling = bounds.ceiling(bounds.dp_sgd(noise, rate, steps), kappa).gamma
    assert success <= ceiling + 4 * error
    assert success >= ceiling - 4 * error - 1 / (kappa * records)
    assert error < 0.01


def test_two_opposite_records_many_subsampled_steps():
    """±1 again, with subsampling and many steps: below the ceiling, if no longer at it."""
    noise, rate, steps, draws = 1.0, 0.1, 100, 40_000
    rng = np.random.default_rng(0)
    present = rng.random((draws, steps)) < rate
    release = present + noise * rng.normal(size=(draws, steps))

    def log_ratio(x):
        return np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2))).sum(axis=1)

    success = np.mean(log_ratio(release) > log_ratio(-release))
    ceiling = bounds.ceiling(bounds.dp_sgd(noise, rate, steps), 0.5).gamma
    assert 0.95 * ceiling < success < ceiling


@pytest.mark.parametrize("records", [3, 10, 100])
def test_one_of_many_directions(records):
    """Records at the corners of a simplex, equally likely: name the one that fits best."""
    rng, draws, noise = np.random.default_rng(0), 40_000, 0.5
    corners = np.eye(records) - 1 / records
    corners /= np.linalg.norm(corners, axis=1, keepdims=True)
    release = corners[0] + noise * rng.normal(size=(draws, records))
    success = np.mean((release @ corners.T).argmax(axis=1) == 0)
    ceiling = bounds.ceiling(bounds.dp_sgd(noise, 1.0, 1), 1 / records).gamma
    assert 0.85 * ceiling < success < ceiling


def test_prior_aware_attack_on_a_private_gradient():
    """Hayes et al. 2023's attack, the inner product with candidates, over several noisy steps."""
    rng, candidates, steps, noise, draws = np.random.default_rng(1), 16, 20, 4.0, 4000
    gradients = rng.normal(size=(candidates, steps, 30))
    gradients /= np.linalg.norm(gradients, axis=2, keepdims=True)
    truth = rng.integers(candidates, size=draws)
    hits = 0
    for target in truth:
        private = gradients[target] + noise * rng.normal(size=(steps, 30))
        hits += int(np.argmax((gradients * private).sum(axis=(1, 2))) == target)
    ceiling = bounds.ceiling(bounds.dp_sgd(noise, 1.0, steps), 1 / candidates).gamma
    assert 0.6 * ceiling < hits / draws < ceiling


@pytest.mark.parametrize("form", ["top", "bottom"])
@pytest.mark.parametrize(
    ("noise", "rate", "steps", "kappa"),
    [(1.0, 1.0, 1, 0.1), (1.0, 0.1, 100, 0.1), (1, 0.01, 50, 0.5)],
)
def test_monte_carlo_agrees(noise, rate, steps, kappa, form):
    exact = bounds.ceiling(bounds.dp_sgd(noise, rate, steps), kappa).gamma
    estimate = bounds.monte_carlo_gamma(noise, rate, steps, kappa, samples=60_000, form=form, rng=3)
    assert abs(estimate.gamma - exact) < 4 * estimate.standard_error
    # And it would notice a ceiling that is off by a little.
    assert estimate.standard_error < 0.03 * exact


def test_monte_carlo_standard_error_is_honest():
    """The spread over repetitions is what the standard error says."""
    runs = [bounds.monte_carlo_gamma(1.0, 0.1, 20, 0.05, samples=4000, rng=i) for i in range(200)]
    spread = np.std([run.gamma for run in runs], ddof=1)
    stated = np.mean([run.standard_error for run in runs])
    assert 0.8 < spread / stated < 1.25


def test_top_form_is_better_at_small_kappa():
    top, bottom = (
        bounds.monte_carlo_gamma(1.0, 0.1, 20, 0.001, samples=50_000, form=form, rng=0)
        for form in ("top", "bottom")
    )
    assert top.standard_error < 0.5 * bottom.standard_error


def test_a_slightly_wrong_ceiling_is_noticed():
    """The add direction, or half the sensitivity, would be beaten by the attack on two records."""
    noise, draws = 1.0, 400_000
    success = np.mean(1.0 + noise * np.random.default_rng(0).normal(size=draws) > 0)
    for wrong in (0.95, 0.5):
        assert success > ndtr(ndtri(0.5) + wrong / noise) + 4 * math.sqrt(0.25 / draws)


def test_a_table_of_losses_is_a_distribution():
    """A finite mechanism as a PrivacyLoss, against its own optimal test by enumeration."""
    with_target, without = np.array([0.5, 0.3, 0.2]), np.array([0.125, 0.3, 0.575])
    losses = np.log(with_target / without)
    grid = np.ceil(losses / 1e-4).astype(int)
    masses = np.zeros(grid.max() - grid.min() + 1)
    masses[grid - grid.min()] = with_target
    loss = PrivacyLoss(1e-4, int(grid.min()), masses, 0.0)
    for kappa, exact in [(0.125, 0.5), (0.25, 0.625), (0.425, 0.8), (1.0, 1.0)]:
        assert exact <= float(loss.gamma(kappa)) <= exact * 1.0002
