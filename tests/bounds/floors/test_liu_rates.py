"""Liu et al. 2024, Table 1: its values and laws, and the law of the lower rate on real networks."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.bounds.floors import (
    FloorBinds,
    cramer_rao_from_jacobian,
    fisher_floor,
    fisher_leakage,
    release_jacobian,
)
from exhume.bounds.floors.liu import (
    Strengths,
    TwoLayerBatch,
    all_rates,
    dp_sgd,
    dropout,
    gradient_clipping,
    gradient_noise,
    gradient_pruning,
    local_aggregation,
    no_defence,
    pruned_share,
    secure_aggregation,
)
from exhume.protocol.errors import InputError

NETWORK = TwoLayerBatch(dimension=64, width=4096, batch=4, observation_noise=0.5)
STRENGTHS = Strengths(noise=2.0, clip_ratio=3.0, drop=0.75, pruned_share=0.36, clients=10)

# By hand from Table 1 with √(d/m) = 1/8, σ = .5, σ₀ = 2, ‖G‖/C = 3, p = .75, p̂ = .36; the noise
# of the two defences that add some is √(.25 + 4).
GOLDEN = {
    "none": (0.5, 0.0625),
    "local aggregation": (0.5, 0.0625),
    "gradient noise": (0.75, 0.25769410),
    "gradient clipping": (0.5, 0.1875),
    "DP-SGD": (1.25, 0.77308231),
    "secure aggregation": (5.0, 0.0625),
    "dropout": (1.0, 0.125),
    "gradient pruning": (None, 0.078125),
}


def test_golden_table():
    table = all_rates(NETWORK, STRENGTHS)
    assert [row.defence for row in table] == list(GOLDEN)
    for row in table:
        upper, lower = GOLDEN[row.defence]
        assert row.lower == pytest.approx(lower, rel=1e-7)
        assert row.upper == (None if upper is None else pytest.approx(upper, rel=1e-12))
        assert row.binds is FloorBinds.UNBIASED
        assert row.lower_source
        assert "lower:" in row.assumptions


def test_defences_switched_off_are_no_defence():
    table = all_rates(NETWORK, Strengths())
    for row in table[1:]:
        assert row.lower == table[0].lower
        assert row.upper in (table[0].upper, None)


networks = st.builds(
    TwoLayerBatch,
    dimension=st.integers(1, 5000),
    width=st.integers(1, 100_000),
    batch=st.integers(1, 64),
    observation_noise=st.floats(0.01, 10),
)
strengths = st.builds(
    Strengths,
    noise=st.floats(0, 10),
    clip_ratio=st.floats(0, 20),
    drop=st.floats(0, 0.99),
    pruned_share=st.floats(0, 0.99),
    clients=st.integers(1, 100),
)


def column(network, strength, side):
    values = [getattr(row, side) for row in all_rates(network, strength)]
    return np.array([v for v in values if v is not None])


@settings(deadline=None, max_examples=60)
@given(network=networks, strength=strengths, factor=st.integers(2, 9))
def test_every_rate_goes_with_the_root_of_dimension_over_width(network, strength, factor):
    for side in ("upper", "lower"):
        base = column(network, strength, side)
        deep = column(replace(network, dimension=factor * network.dimension), strength, side)
        wide = column(replace(network, width=factor * network.width), strength, side)
        np.testing.assert_allclose(deep, base * math.sqrt(factor))
        np.testing.assert_allclose(wide, base / math.sqrt(factor))


@settings(deadline=None, max_examples=60)
@given(network=networks, strength=strengths, factor=st.integers(2, 9))
def test_the_batch_enters_the_upper_rate_alone(network, strength, factor):
    larger = replace(network, batch=factor * network.batch)
    quiet = replace(strength, noise=0.0)
    np.testing.assert_allclose(
        column(larger, quiet, "upper"), factor * column(network, quiet, "upper")
    )
    np.testing.assert_allclose(
        column(larger, strength, "lower"), column(network, strength, "lower")
    )


@settings(deadline=None, max_examples=60)
@given(network=networks, drop=st.floats(0, 0.99))
def test_dropout_and_pruning_go_with_the_root_of_what_is_kept(network, drop):
    scale = 1 / math.sqrt(1 - drop)
    base = no_defence(network)
    assert dropout(network, drop).upper == pytest.approx(base.upper * scale)
    assert dropout(network, drop).lower == pytest.approx(base.lower * scale)
    assert gradient_pruning(network, drop).lower == pytest.approx(base.lower * scale)


@settings(deadline=None, max_examples=60)
@given(network=networks, noise=st.floats(0, 100), ratio=st.floats(0, 100))
def test_noise_adds_to_the_batch_and_clipping_multiplies_the_noise(network, noise, ratio):
    base, clip = no_defence(network), max(1.0, ratio)
    noisy = gradient_noise(network, noise)
    assert noisy.upper / base.upper == pytest.approx((network.batch + noise) / network.batch)
    both = dp_sgd(network, noise, ratio)
    assert both.upper / base.upper == pytest.approx((network.batch + noise * clip) / network.batch)
    assert both.lower == pytest.approx(noisy.lower * clip)
    clipped = gradient_clipping(network, ratio)
    assert (clipped.upper, clipped.lower) == (base.upper, pytest.approx(base.lower * clip))


@settings(deadline=None, max_examples=60)
@given(network=networks, strength=strengths, more=st.floats(0, 5))
def test_a_stronger_defence_never_lowers_a_rate(network, strength, more):
    stronger = Strengths(
        noise=strength.noise + more,
        clip_ratio=strength.clip_ratio + more,
        drop=1 - (1 - strength.drop) / (1 + more),
        pruned_share=1 - (1 - strength.pruned_share) / (1 + more),
        clients=strength.clients + int(more),
    )
    for side in ("upper", "lower"):
        lower = column(network, strength, side)
        assert (column(network, stronger, side) >= lower * (1 - 1e-12)).all()


def test_without_noise_there_is_no_lower_rate():
    silent = replace(NETWORK, observation_noise=0.0)
    assert no_defence(silent).lower == 0.0
    assert gradient_noise(silent, 2.0).lower == pytest.approx(0.25)


def test_assumptions_that_fail_are_named():
    assert no_defence(TwoLayerBatch(dimension=256, width=4096, batch=4)).violated == ()
    (batch,) = no_defence(TwoLayerBatch(dimension=64, width=4096, batch=4)).violated
    assert batch == "batch⁴ ≤ dimension (256 > 64)"
    (width,) = dropout(TwoLayerBatch(dimension=256, width=4096, batch=4), 0.5).violated
    assert width == "width ≥ batch² · dimension (2048 < 4096)"
    assert (
        len(secure_aggregation(TwoLayerBatch(dimension=256, width=4096, batch=4), 10).violated) == 2
    )
    assert (
        "width > batch (2 ≤ 3)"
        in local_aggregation(TwoLayerBatch(dimension=100, width=2, batch=3)).violated
    )
    assert gradient_pruning(TwoLayerBatch(dimension=64, width=4096, batch=4), 0.1).violated == ()


def two_layer_gradient(dimension, width, seed):
    """The paper's network: a ~ N(0, 1/m²), w ~ N(0, I), squared loss on a record of norm 1."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    outer, inner, record = normal(width) / width, normal(width, dimension), normal(dimension)

    def release(x):
        a, w = outer.clone().requires_grad_(), inner.clone().requires_grad_()
        loss = (1.0 - a @ torch.tanh(w @ x)) ** 2
        return torch.autograd.grad(loss, (a, w), create_graph=True)

    return release, record / record.norm()


def constants(dimension, width):
    """Floors on the root of E‖x - x̂‖² over the rate: Cramér–Rao, and its loosening d²/tr(JᵀJ)."""
    noise, exact, loose = 0.1, 0.0, 0.0
    for seed in range(4):
        jacobian = release_jacobian(*two_layer_gradient(dimension, width, seed))
        exact += dimension * cramer_rao_from_jacobian(jacobian, noise).value / 4
        loose += dimension * fisher_floor(fisher_leakage(jacobian, noise)).value / 4
    rate = no_defence(
        TwoLayerBatch(dimension=dimension, width=width, observation_noise=noise)
    ).lower
    return math.sqrt(exact) / rate, math.sqrt(loose) / rate


def test_the_lower_rate_differs_from_the_exact_floor_by_a_constant():
    """The rate itself spans a factor of √(8 · 4) = 5.7 over these settings."""
    table = np.array([constants(d, m) for d, m in [(8, 400), (8, 1600), (64, 400), (64, 1600)]])
    exact, loose = table.max(axis=0) / table.min(axis=0)
    assert exact < 1.3
    assert loose < 1.1  # this is what the paper's proof follows (Remark D.3)
    assert (table[:, 1] <= table[:, 0]).all()


def test_pruning_small_entries_takes_little_of_the_jacobian():
    """Remark E.4: small entries belong to the first layer, and hardly carry information."""
    release, record = two_layer_gradient(8, 400, 0)
    jacobian = release_jacobian(release, record)
    sizes = torch.cat([g.reshape(-1) for g in release(record)]).detach().abs().numpy()
    pruned = sizes < np.quantile(sizes, 0.8)
    assert pruned_share(jacobian, pruned) < 0.01
    assert pruned_share(jacobian, ~pruned) == pytest.approx(1 - pruned_share(jacobian, pruned))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: TwoLayerBatch(dimension=0, width=1), "dimension"),
        (lambda: TwoLayerBatch(dimension=1, width=-1), "width"),
        (lambda: TwoLayerBatch(dimension=1, width=1, batch=0), "batch"),
        (
            lambda: TwoLayerBatch(dimension=1, width=1, observation_noise=math.nan),
            "observation_noise",
        ),
        (lambda: gradient_noise(NETWORK, -1.0), "noise"),
        (lambda: gradient_clipping(NETWORK, math.nan), "clip_ratio"),
        (lambda: dp_sgd(NETWORK, math.inf, 1.0), "noise"),
        (lambda: dropout(NETWORK, 1.0), "drop"),
        (lambda: dropout(NETWORK, -0.1), "drop"),
        (lambda: gradient_pruning(NETWORK, 1.5), "pruned_share"),
        (lambda: secure_aggregation(NETWORK, 0), "clients"),
        (lambda: pruned_share([[1.0]], [True, False]), "pruned"),
        (lambda: pruned_share([[0.0]], [True]), "zeros"),
    ],
)
def test_wrong_input_is_named(call, name):
    with pytest.raises(InputError, match=name):
        call()
