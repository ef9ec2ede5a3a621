"""kappa from samples: never too small, and not needlessly large."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from exhume import bounds
from exhume.bounds.samples import MOST_SAMPLES
from exhume.protocol.errors import InputError
from exhume.stats.proportions import clopper_pearson_high

METHODS = ("mean-distance", "doubled-radius")


def _on_a_sphere(rng, n):
    points = rng.normal(size=(n, 20))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


# name, sampler, eta, true kappa
KNOWN = [
    # Every point is within 1 of the centre, while hardly two points are within 1 of each other.
    ("sphere", _on_a_sphere, 1.0, 1.0),
    ("interval", lambda rng, n: rng.uniform(size=(n, 1)), 0.05, 0.1),
    ("atoms", lambda rng, n: 10.0 * rng.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=(n, 1)), 1.0, 0.4),
    ("disc", lambda rng, n: _disc(rng, n), 0.4, 0.16),
    (
        "gaussian",
        lambda rng, n: rng.normal(size=(n, 5)),
        1.2,
        bounds.kappa_gaussian(dimension=5, sigma=1.0, eta=1.2),
    ),
    # The best ball holds about one sample in 200: often none of the 60.
    ("rare", lambda rng, n: rng.uniform(size=(n, 1)), 0.0025, 0.005),
]


def _disc(rng, n):
    angle, radius = rng.uniform(0, 2 * np.pi, n), np.sqrt(rng.uniform(size=n))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "sampler", "eta", "kappa"), KNOWN, ids=[k[0] for k in KNOWN])
def test_covers_the_truth(name, sampler, eta, kappa, method):
    rng, confidence, trials = np.random.default_rng(1), 0.8, 150
    misses = 0
    for _ in range(trials):
        samples = sampler(rng, 60)
        found = bounds.kappa_from_samples(samples, eta=eta, confidence=confidence, method=method)
        misses += found.kappa < kappa * (1.0 - 1e-12)
    # A bound that misses with probability 0.2 gets here with probability 1e-6.
    assert misses <= binom.ppf(1.0 - 1e-6, trials, 1.0 - confidence)


def test_the_naive_count_would_be_unsound():
    """What is refused, written out: far below the truth on the sphere."""
    points = _on_a_sphere(np.random.default_rng(0), 400)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    naive = (distances <= 1.0).sum(axis=1).max() / 400
    assert clopper_pearson_high(round(400 * naive), 400) < 0.3
    assert bounds.kappa_from_samples(points, eta=1.0).kappa == 1.0


def test_approaches_the_truth_on_atoms():
    samples = np.random.default_rng(0).choice(4, p=[0.4, 0.3, 0.2, 0.1], size=(2000, 1))
    found = bounds.kappa_from_samples(10.0 * samples, eta=1.0)
    assert 0.4 < found.kappa < 0.44
    assert found.samples == 2000
    assert found.most_in_a_ball == np.bincount(samples[:, 0]).max()


def test_mean_distance_helps_in_high_dimension():
    samples = np.random.default_rng(0).normal(size=(400, 100))
    # Typical distances are √200 ≈ 14: within 2η = 16, but beyond √2·η ≈ 11. The truth is 0.002.
    loose = bounds.kappa_from_samples(samples, eta=8.0, method="doubled-radius").kappa
    assert bounds.kappa_from_samples(samples, eta=8.0).kappa < 0.1 < 0.8 < loose


def _most_in_a_ball(points, eta):
    """The most points in any closed disc: its edge passes through two of them, or it is centred."""
    centres = list(points)
    for a, b in itertools.combinations(points, 2):
        middle, half = (a + b) / 2, np.linalg.norm(b - a) / 2
        if 0 < half <= eta:
            across = np.array([a[1] - b[1], b[0] - a[0]]) / (2 * half)
            offset = math.sqrt(eta**2 - half**2) * across
            centres += [middle, middle + offset, middle - offset]
    near = np.linalg.norm(np.array(centres)[:, None] - points[None], axis=2) <= eta * (1 + 1e-12)
    return int(near.sum(axis=1).max())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.05, 1.0))
def test_counts_bound_every_ball(seed, n, eta):
    points = np.random.default_rng(seed).uniform(size=(n, 2))
    truth = _most_in_a_ball(points, eta)
    for method in METHODS:
        assert bounds.kappa_of_pool(points, eta=eta, method=method) >= truth / n
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert bounds.kappa_from_distances(distances, eta=eta).most_in_a_ball >= truth
    mean, doubled = (bounds.kappa_of_pool(points, eta=eta, method=m) for m in METHODS)
    assert mean <= doubled


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_counts_bound_every_guess_with_a_threshold_a_record(seed, n):
    """On a line the best guess is where most intervals [x - η, x + η] overlap."""
    rng = np.random.default_rng(seed)
    points, radii = rng.uniform(size=n), rng.exponential(0.1, size=n)
    guesses = np.concatenate([points - radii, points + radii])
    near = np.abs(guesses[:, None] - points) <= radii + 1e-12
    truth = int(near.sum(axis=1).max())
    for method in METHODS:
        assert bounds.kappa_of_pool(points[:, None], eta=radii, method=method) >= truth / n
    distances = np.abs(np.subtract.outer(points, points))
    assert bounds.kappa_from_distances(distances, eta=radii).most_in_a_ball >= truth


def test_one_threshold_is_the_same_threshold_for_all():
    samples = np.random.default_rng(0).normal(size=(50, 4))
    for method in METHODS:
        one = bounds.kappa_from_samples(samples, eta=1.3, method=method)
        assert bounds.kappa_from_samples(samples, eta=np.full(50, 1.3), method=method) == one


@pytest.mark.parametrize("method", METHODS)
def test_covers_the_truth_with_a_threshold_a_record(method):
    """Uniform on [0, 1] with η(z) = z/4: guessing 0.75 succeeds on [0.6, 1], κ = 0.4."""
    rng, misses = np.random.default_rng(2), 0
    for _ in range(150):
        samples = rng.uniform(size=(60, 1))
        found = bounds.kappa_from_samples(
            samples, eta=samples[:, 0] / 4, confidence=0.8, method=method
        )
        misses += found.kappa < 0.4
    assert misses <= binom.ppf(1.0 - 1e-6, 150, 0.2)


def test_far_from_the_origin_nothing_is_lost_to_rounding():
    points = 1e7 + np.array([[0.0], [1.0], [1.0], [5.0]])
    assert bounds.kappa_of_pool(points, eta=0.5) >= 0.75


def test_images_keep_their_shape():
    images = np.random.default_rng(0).uniform(size=(20, 4, 4))
    flat = bounds.kappa_from_samples(images.reshape(20, 16), eta=0.3)
    assert bounds.kappa_from_samples(images, eta=0.3) == flat


def test_clopper_pearson_against_its_definition():
    upper = clopper_pearson_high(3, 20, confidence=0.9)
    assert binom.cdf(3, 20, upper) == pytest.approx(0.1, rel=1e-9)
    assert clopper_pearson_high(20, 20, confidence=0.9) == 1.0


def test_there_is_no_naive_kappa():
    with pytest.raises(InputError, match="need not be a sample"):
        bounds.kappa_from_samples([[0.0], [1.0]], eta=0.1, method="naive")
    with pytest.raises(InputError, match="need not be a sample"):
        bounds.kappa_of_pool([[0.0], [1.0]], eta=0.1, method="naive")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.kappa_from_samples([[0.0]], eta=0.1), "n ≥ 2"),
        (lambda: bounds.kappa_from_samples([0.0, 1.0], eta=0.1), "shape"),
        (lambda: bounds.kappa_from_samples([[0.0], [math.nan]], eta=0.1), "NaN"),
        (lambda: bounds.kappa_from_samples([[0.0], [1.0]], eta=-0.1), "eta"),
        (lambda: bounds.kappa_from_samples([[0.0], [1.0]], eta=[0.1, -0.1]), "eta"),
        (lambda: bounds.kappa_from_samples([[0.0], [1.0]], eta=[0.1, math.nan]), "eta"),
        (lambda: bounds.kappa_from_samples([[0.0], [1.0]], eta=[0.1, 0.1, 0.1]), "one per sample"),
        (lambda: bounds.kappa_from_samples([[0.0], [1.0]], eta=0.1, confidence=1.0), "confidence"),
        (lambda: bounds.kappa_from_samples([[0.0], [1.0]], eta=0.1, method="x"), "unknown method"),
        (lambda: bounds.kappa_from_samples(np.zeros((MOST_SAMPLES + 1, 1)), eta=0.1), "subset"),
        (lambda: bounds.kappa_from_distances([[0.0, 1.0], [2.0, 0.0]], eta=0.1), "symmetric"),
        (lambda: bounds.kappa_from_distances([[0.0, 1.0]], eta=0.1), "shape"),
    ],
)
def test_wrong_parameters(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("scale", [1e160, 1e200, 1e308])
def test_values_whose_squares_overflow_are_refused(scale: float) -> None:
    """Without the check, such distances are NaN, count as far, and kappa is too low."""
    points = scale * np.array([[0.0], [0.1], [1.0]])
    with pytest.raises(InputError, match="too large to square"):
        bounds.kappa_of_pool(points, eta=0.2 * scale)
    smaller = points / scale
    assert bounds.kappa_of_pool(smaller, eta=0.2) == bounds.kappa_of_pool(1e100 * smaller, eta=2e99)
