"""The floor under noisy gradients in an audit, against Jacobians written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from exhume.audit import make_plan
from exhume.audit.gradient_floors import ErrorFloor, error_floor
from exhume.audit.setting import ThreatSetting
from exhume.config import parse
from exhume.training.gradient import gradient_step

TEXT = """
[data]
name = "digits"
shadow_targets = 20
[release]
kind = "gradient"
model = "mlp"
hidden = [30, 20]
activation = "tanh"
batch_size = 2
[audit]
targets = 4
[grid]
one = [{listed}]
"""
NOISE = '{ name = "noise", size = 0.01 }'


def _setting(listed: str) -> ThreatSetting:
    config = parse(TEXT.format(listed=listed), folder=Path(), source="audit.toml")
    return make_plan(config).setting(1)


def _floor(listed: str) -> ErrorFloor | None:
    return error_floor(_setting(listed))


def _value(listed: str) -> float:
    found = _floor(listed)
    assert found is not None
    assert found.value is not None
    return found.value


def _by_hand(deviation: float) -> float:
    """√(σ² tr(JᵀJ)⁻¹ / d), J by torch's own Jacobian of a network written out here."""
    setting = _setting(NOISE)
    step = gradient_step(setting.mechanism)
    assert step is not None
    assert setting.targets is not None
    batch = setting.targets.take([0, 1])
    own = [torch.tensor(a, dtype=torch.float64) for a in step.parameters().values()]
    y = torch.tensor(step.responses(batch.labels))

    def sent(x: torch.Tensor) -> torch.Tensor:
        leaves = [p.clone().requires_grad_(True) for p in own]
        h = x.flatten(1)
        for layer in range(3):
            h = h @ leaves[2 * layer].T + leaves[2 * layer + 1]
            h = torch.tanh(h) if layer < 2 else h
        loss = torch.nn.functional.cross_entropy(h, y)
        return torch.cat([g.ravel() for g in torch.autograd.grad(loss, leaves, create_graph=True)])

    x = torch.tensor(np.asarray(batch.x, dtype=np.float64))
    jacobian = torch.autograd.functional.jacobian(sent, x).reshape(-1, x.numel())
    inverse = torch.linalg.inv(jacobian.T @ jacobian)
    return deviation * float((inverse.trace() / x.numel()).sqrt())


def test_is_that_of_the_jacobian() -> None:
    assert _value(NOISE) == pytest.approx(_by_hand(0.01), rel=1e-6)


def test_says_whom_it_binds() -> None:
    found = _floor(NOISE)
    assert found is not None
    assert found.binds == "unbiased attacks only"


def test_follows_the_noise_as_the_server_has_it() -> None:
    plain = _value(NOISE)
    assert _value(NOISE.replace("0.01", "0.03")) == pytest.approx(3 * plain, rel=1e-9)
    rounds = f'{NOISE}, {{ name = "rounds", rounds = 4 }}'
    assert _value(rounds) == pytest.approx(plain / 2, rel=1e-9)


def test_what_is_done_after_the_noise_changes_nothing() -> None:
    """Post-processing can only lose: the floor holds, and is not claimed to be higher."""
    pruned = f'{NOISE}, {{ name = "pruning", share = 0.9 }}'
    assert _value(pruned) == pytest.approx(_value(NOISE), rel=1e-9)


def test_what_is_done_before_the_noise_raises_it() -> None:
    plain = _value(NOISE)
    assert _value(f'{{ name = "clipping", norm = 0.5 }}, {NOISE}') > 1.2 * plain
    assert _value(f'{{ name = "pruning", share = 0.5 }}, {NOISE}') > 1.02 * plain
    private = '{ name = "dp-sgd", norm = 0.5, noise_multiplier = 0.04 }'
    clipped = '{ name = "record-clipping", norm = 0.5 }'
    assert _value(private) == pytest.approx(_value(f"{clipped}, {NOISE}"), rel=1e-6)


@pytest.mark.parametrize(
    "listed",
    [
        '{ name = "clipping", norm = 0.5 }',
        '{ name = "mixup" }, { name = "noise", size = 0.01 }',
        '{ name = "noise", size = 0.01 }, { name = "secure-aggregation", clients = 2 }',
    ],
)
def test_nothing_is_claimed_without_noise_of_a_known_place(listed: str) -> None:
    assert _floor(listed) is None


def test_a_direction_that_leaves_no_trace_is_told() -> None:
    """With more numbers in the records than in the gradient, no unbiased attack exists."""
    found = _floor(f'{{ name = "top-k", count = 60 }}, {NOISE}')
    assert found is not None
    assert found.value is None
    assert found.note
