"""Gradients and local updates as releases."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Literal

import dp_accounting
import numpy as np
import pytest
import torch
from tests.contract.cases import Case
from tests.contract.mechanism import MechanismContract

from exhume.models import CNN, MLP, Activation, Initialisation, Network
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Update
from exhume.training import SGD, Batches
from exhume.training.gradient import GradientStep, gradient_step, public_parameters
from exhume.training.local_steps import Aggregate, LocalSteps

NETWORK = MLP((3, 3), 4, (7,), Activation.RELU)
STEP = GradientStep(NETWORK, (0, 1, 2, 3), precision="float64")
SMALL = GradientStep(CNN((10, 10, 2), 3), ("a", "b", "c"), Initialisation(seed=None))


@dataclass(frozen=True)
class Normalised(Network):
    """A linear layer behind batch normalisation."""

    record_shape: tuple[int, ...] = (5,)
    outputs: int = 3

    def build(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))

    def describe(self) -> str:
        return "a normalised linear model"


def batch(count: int, step: GradientStep = STEP, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    x = rng.random((count, *step.network.record_shape))
    labels = rng.integers(0, step.network.outputs, count)
    return Records(x, labels if step.classes is None else np.asarray(step.classes)[labels])


def case(name: str, mechanism: Mechanism, step: GradientStep, known: int) -> Case:
    data = batch(known + 3, step)
    return Case(name, mechanism, data.take(slice(0, known)), data.take(slice(known, None)))


CASES = (
    case("one record", STEP, STEP, 0),
    case("the last of five records", STEP, STEP, 4),
    case("a secret initialisation", SMALL, SMALL, 2),
    case(
        "batch normalisation",
        GradientStep(Normalised(), (0, 1, 2)),
        GradientStep(Normalised(), (0, 1, 2)),
        4,
    ),
    case("local steps", LocalSteps(STEP, SGD(0.1, 0.9), 2, Batches(2)), STEP, 4),
    case("two clients", Aggregate(STEP, 2), STEP, 4),
    case("two clients' steps", Aggregate(LocalSteps(STEP, SGD(0.1), 2), 2), STEP, 4),
)


class TestContract(MechanismContract):
    @pytest.fixture(params=CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    def test_no_promise_is_made(self, case: Case) -> None:
        assert case.mechanism.event(5) == dp_accounting.NonPrivateDpEvent()


def by_hand(step: GradientStep, data: Records) -> dict[str, np.ndarray]:
    """PyTorch's own way: a module, a loss, backward."""
    module = step.network.build().double()
    with torch.no_grad():
        for name, values in module.named_parameters():
            values.copy_(torch.tensor(step.parameters()[name]))
    scores = module(torch.tensor(data.x, dtype=torch.float64))
    torch.nn.functional.cross_entropy(scores, torch.tensor(data.labels)).backward()
    return {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}


class TestGradientStep:
    @pytest.mark.parametrize("count", [1, 6])
    def test_is_pytorchs_gradient(self, count: int) -> None:
        data = batch(count)
        release = STEP.publish(data, rng=np.random.default_rng(0))
        assert isinstance(release, Gradient)
        assert release.batch_size == count
        expected = by_hand(STEP, data)
        assert list(release.gradients) == list(expected)
        for name, values in expected.items():
            np.testing.assert_allclose(release.gradients[name], values, rtol=1e-12, atol=1e-15)

    def test_regression_has_the_halved_squared_error(self) -> None:
        step = GradientStep(MLP((2,), 1, ()), None, precision="float64")
        data = Records(np.array([[1.0, 2.0]]), np.array([3.0]))
        residual = float(step.parameters()["1.weight"][0] @ data.x[0]) - 3.0
        release = step.publish(data, rng=np.random.default_rng(0))
        np.testing.assert_allclose(release.gradients["1.weight"][0], residual * data.x[0])
        np.testing.assert_allclose(release.gradients["1.bias"], [residual])

    def test_given_parameters_are_used_and_survive_a_pickle(self) -> None:
        other = {n: v + 0.1 for n, v in STEP.parameters().items()}
        given = pickle.loads(pickle.dumps(replace(STEP, state=other)))
        for name, values in given.parameters().items():
            np.testing.assert_array_equal(values, other[name])
        release = given.publish(batch(3), rng=np.random.default_rng(0))
        for name, values in by_hand(given, batch(3)).items():
            np.testing.assert_allclose(release.gradients[name], values, rtol=1e-12, atol=1e-15)

    def test_weights_multiply_losses(self) -> None:
        data = batch(2)
        weighted = replace(data, weight=np.array([2.0, 0.0]))
        found = STEP.publish(weighted, rng=np.random.default_rng(0))
        alone = STEP.publish(data.take([0]), rng=np.random.default_rng(0))
        for name, values in alone.gradients.items():
            np.testing.assert_allclose(found.gradients[name], values, rtol=1e-12)

    def test_secret_parameters_are_not_told(self) -> None:
        with pytest.raises(InputError, match="drawn in secret"):
            SMALL.parameters()
        assert public_parameters(Knowledge(record_shape=(10, 10, 2), training=SMALL)) is None

    @pytest.mark.parametrize(
        ("step", "message"),
        [
            (lambda: GradientStep(NETWORK, (0, 1)), "4 outputs, but there are 2 classes"),
            (lambda: GradientStep(NETWORK, None), "a regression has one output, the network 4"),
        ],
    )
    def test_outputs_must_fit(self, step, message: str) -> None:
        with pytest.raises(InputError, match=message):
            step()

    def test_an_empty_batch_has_no_gradient(self) -> None:
        with pytest.raises(InputError, match="at least one record"):
            STEP.publish(batch(1).take([]), rng=np.random.default_rng(0))

    def test_wrong_state_is_named(self) -> None:
        state = dict(STEP.parameters())
        state["1.weight"] = state["1.weight"].T
        with pytest.raises(InputError, match=r"'1.weight' has shape \(9, 7\)"):
            replace(STEP, state=state).publish(batch(1), rng=np.random.default_rng(0))


BUFFERS = {
    "0.running_mean": np.full(5, 0.3),
    "0.running_var": np.linspace(0.5, 2.0, 5),
    "0.num_batches_tracked": np.array(9),
}


class TestBatchNormalisation:
    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_uses_the_right_statistics(self, mode: Literal["train", "eval"]) -> None:
        step = GradientStep(
            Normalised(), (0, 1, 2), buffers=BUFFERS, precision="float64", batch_norm=mode
        )
        data = batch(4, step)
        module = Normalised().build().double().train(mode == "train")
        state = {n: torch.tensor(v) for n, v in (step.parameters() | BUFFERS).items()}
        module.load_state_dict(state)
        scores = module(torch.tensor(data.x))
        torch.nn.functional.cross_entropy(scores, torch.tensor(data.labels)).backward()
        release = step.publish(data, rng=np.random.default_rng(0))
        for name, values in module.named_parameters():
            assert values.grad is not None
            np.testing.assert_allclose(release.gradients[name], values.grad, rtol=1e-9, atol=1e-14)

    def test_the_loss_remembers_nothing(self) -> None:
        step = GradientStep(Normalised(), (0, 1, 2), buffers=BUFFERS)
        objective = step.objective()
        before = {n: b.clone() for n, b in objective.module.named_buffers()}
        rng = np.random.default_rng(0)
        step.gradient(objective, step.theta(objective, rng), batch(4, step), rng)
        for name, values in objective.module.named_buffers():
            assert torch.equal(values, before[name])

    @pytest.mark.parametrize(
        ("buffers", "message"),
        [
            ({"nowhere": np.ones(5)}, "no buffer 'nowhere'"),
            ({"0.running_mean": np.ones(4)}, r"has shape \(4,\), the network's has \(5,\)"),
        ],
    )
    def test_wrong_buffers_are_named(self, buffers: dict[str, np.ndarray], message: str) -> None:
        with pytest.raises(InputError, match=message):
            GradientStep(Normalised(), (0, 1, 2), buffers=buffers).objective()


class TestLocalSteps:
    def test_one_full_step_is_the_gradient(self) -> None:
        data = batch(5)
        update = LocalSteps(STEP, SGD(0.25)).publish(data, rng=np.random.default_rng(0))
        assert isinstance(update, Update)
        assert (update.batch_size, update.steps) == (5, 1)
        gradient = STEP.publish(data, rng=np.random.default_rng(0))
        for name, values in gradient.gradients.items():
            np.testing.assert_allclose(update.changes[name], -0.25 * values, atol=1e-15)

    def test_steps_are_torch_optims(self) -> None:
        data, batches = batch(5), Batches(2, seed=3)
        local = LocalSteps(STEP, SGD(0.1, 0.9, 1e-3), 2, batches)
        update = local.publish(data, rng=np.random.default_rng(0))
        module = NETWORK.build().double()
        module.load_state_dict({n: torch.tensor(v) for n, v in STEP.parameters().items()})
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        for chosen in batches.steps(5, 2, np.random.default_rng(0)):
            optimiser.zero_grad()
            scores = module(torch.tensor(data.x[chosen]))
            torch.nn.functional.cross_entropy(scores, torch.tensor(data.labels[chosen])).backward()
            optimiser.step()
        assert update.steps == 6
        for name, values in module.named_parameters():
            change = values.detach().numpy() - STEP.parameters()[name]
            np.testing.assert_allclose(update.changes[name], change, rtol=1e-9, atol=1e-14)

    def test_a_secret_order_comes_from_the_stream(self) -> None:
        local = LocalSteps(STEP, SGD(0.5), 1, Batches(2, seed=None))
        one, other = (local.publish(batch(6), rng=np.random.default_rng(i)) for i in range(2))
        assert not np.allclose(one.changes["1.weight"], other.changes["1.weight"], atol=1e-6)
        assert not local.order_known

    def test_divergence_is_said(self) -> None:
        with pytest.raises(InputError, match="diverged"):
            LocalSteps(STEP, SGD(1e300), 9).publish(batch(2), rng=np.random.default_rng(0))


class TestAggregate:
    @pytest.mark.parametrize("clients", [1, 2, 4])
    def test_gradients_add_up_to_the_whole_batch(self, clients: int) -> None:
        data = batch(5)
        found = Aggregate(STEP, clients).publish(data, rng=np.random.default_rng(0))
        assert isinstance(found, Gradient)
        assert found.batch_size == 5
        for name, values in STEP.publish(data, rng=np.random.default_rng(0)).gradients.items():
            np.testing.assert_allclose(found.gradients[name], values, rtol=1e-10, atol=1e-15)

    def test_updates_are_averaged_by_size(self) -> None:
        data, local = batch(3), LocalSteps(STEP, SGD(0.5), 3)
        found = Aggregate(local, 2).publish(data, rng=np.random.default_rng(0))
        assert isinstance(found, Update)
        assert found.steps == 3
        two = local.publish(data.take([0, 1]), rng=np.random.default_rng(0)).changes["1.bias"]
        one = local.publish(data.take([2]), rng=np.random.default_rng(0)).changes["1.bias"]
        np.testing.assert_allclose(found.changes["1.bias"], (2 * two + one) / 3, rtol=1e-12)

    def test_every_client_needs_a_record(self) -> None:
        with pytest.raises(InputError, match="3 clients need a record each, got 2"):
            Aggregate(STEP, 3).publish(batch(2), rng=np.random.default_rng(0))


def test_the_step_inside_is_found() -> None:
    assert gradient_step(Aggregate(LocalSteps(STEP, SGD(0.1)), 2)) is STEP
    assert gradient_step(None) is None
    known = public_parameters(Knowledge(record_shape=(3, 3), training=Aggregate(STEP, 2)))
    assert known is not None
    np.testing.assert_array_equal(known["1.weight"], STEP.parameters()["1.weight"])
    given = {"1.weight": np.ones((7, 9))}
    knowledge = Knowledge(record_shape=(3, 3), training=STEP, initial=given)
    assert public_parameters(knowledge) is knowledge.initial


def test_descriptions() -> None:
    assert STEP.describe() == "one gradient of a 9-7-4 network (relu), at its initialisation"
    assert "a secret initialisation" in SMALL.describe()
    local = LocalSteps(STEP, SGD(0.1), 2, Batches(2, seed=None))
    assert "batches of 2 in a secret order" in local.describe()
    assert Aggregate(local, 3).describe().startswith("the mean over 3 clients of 2 local epochs")
