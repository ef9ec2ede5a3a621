"""A server that trains on defended releases: fast, plain and torch's own loop agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import dp_accounting
import numpy as np
import pytest
import torch

from exhume import defences
from exhume.data import load
from exhume.defences import DPSGD, Rounds
from exhume.models import MLP
from exhume.models.convnet import ConvNet
from exhume.models.initialise import Initialisation
from exhume.models.resnet import resnet20
from exhume.protocol.arrays import Array
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.training import SGD, Batches
from exhume.training.federated import Federated, once
from exhume.training.gradient import GradientStep, gradient_step
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.scores import scored

CLASSES = tuple(range(10))
SECRET = Initialisation(seed=None)


@pytest.fixture(scope="module")
def digits() -> Records:
    return load("digits").train.take(slice(0, 300))


@pytest.fixture(scope="module")
def images() -> Records:
    return load("fashion-mnist-small").train.take(slice(0, 64))


def mlp(initial: Initialisation = SECRET) -> GradientStep:
    return GradientStep(MLP((8, 8), 10, (12, 9)), CLASSES, initial)


def plain_loop(
    settings: Federated, mechanism: Mechanism, data: Records, seed: int = 1
) -> dict[str, Array]:
    """Every round the whole mechanism anew, at parameters given by name: slow and obvious."""
    order, rng = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    step = gradient_step(mechanism)
    assert step is not None
    objective = step.objective()
    theta = step.theta(objective, order)
    velocity = torch.zeros_like(theta)
    for chosen in settings.batches(len(data), order):
        sent = []
        for batch in chosen:
            at = once(mechanism, partial(replace, state=objective.named(theta)))
            release = at.publish(data.take(batch), rng=rng)
            sent.append(objective.flat(dict(release.arrays())))
        mean = torch.stack(sent).mean(dim=0)
        update = type(release).__name__ == "Update"
        velocity = settings.optimiser.momentum * velocity + (-mean if update else mean)
        theta = theta - (1.0 if update else settings.optimiser.learning_rate) * velocity
    return dict(objective.named(theta))


def trained(
    settings: Federated, mechanism: Mechanism, data: Records, seed: int = 1
) -> dict[str, Array]:
    return settings.train(
        mechanism,
        data,
        np.random.default_rng(seed),
        np.random.default_rng(seed + 1),
    )


STACKS: dict[str, Callable[[], Mechanism]] = {
    "none": mlp,
    "noise": lambda: defences.Noise(mlp(), 0.01),
    "clipping": lambda: defences.Clipping(mlp(), 0.5),
    "record clipping": lambda: defences.RecordClipping(mlp(), 0.5),
    "dp-sgd": lambda: DPSGD(mlp(), 1.0, 0.5),
    "pruning": lambda: defences.Pruning(mlp(), 0.9),
    "top-k": lambda: defences.TopK(mlp(), 50),
    "gradient dropout": lambda: defences.GradientDropout(mlp(), 0.5),
    "activation dropout": lambda: defences.ActivationDropout(mlp(), 0.5),
    "mixup": lambda: defences.MixUp(mlp()),
    "sign": lambda: defences.Sign(mlp()),
    "quantised": lambda: defences.Quantised(mlp(), 4, stochastic=True),
    "rounding": lambda: defences.Rounding(mlp(), 3),
    "local steps": lambda: LocalSteps(mlp(), SGD(0.1), 3),
    "dealt out, pruned": lambda: defences.Pruning(
        LocalSteps(defences.MixUp(mlp()), SGD(0.1), 1, Batches(4, seed=None)), 0.5
    ),
    "aggregated": lambda: defences.Noise(Aggregate(defences.Clipping(mlp(), 1.0), 2), 0.01),
    "several rounds": lambda: Rounds(defences.Noise(mlp(), 0.1), 8),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_fast_loop_is_the_plain_loop_bit_for_bit(name: str, digits: Records) -> None:
    settings = Federated(6, 8, SGD(0.2, 0.5), clients=2)
    fast = trained(settings, STACKS[name](), digits)
    slow = plain_loop(settings, STACKS[name](), digits)
    for key, values in slow.items():
        np.testing.assert_array_equal(fast[key], values)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_with_batch_normalisation_too(mode: str, images: Records) -> None:
    step = GradientStep(resnet20((28, 28), 10), CLASSES, SECRET, batch_norm=mode)  # type: ignore[arg-type]
    settings = Federated(2, 4, SGD(0.1))
    fast, slow = trained(settings, step, images), plain_loop(settings, step, images)
    for key, values in slow.items():
        np.testing.assert_array_equal(fast[key], values)


def test_without_defence_it_is_torchs_own_descent(digits: Records) -> None:
    settings, step = Federated(20, 16, SGD(0.2, 0.9)), mlp()
    found = trained(settings, step, digits)
    order = np.random.default_rng(1)
    module = step.network.module()
    with torch.no_grad():
        for name, values in step.initial.draw(step.network, order).items():
            dict(module.named_parameters())[name].copy_(torch.tensor(values))
    optimiser = torch.optim.SGD(module.parameters(), 0.2, momentum=0.9)
    for (chosen,) in settings.batches(len(digits), order):
        x = torch.tensor(np.asarray(digits.x[chosen]), dtype=torch.float32)
        y = torch.tensor(digits.labels[chosen], dtype=torch.long)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    for name, value in module.named_parameters():
        np.testing.assert_allclose(found[name], value.detach().numpy(), atol=2e-5)


def test_one_local_step_is_the_gradient_with_the_clients_rate(digits: Records) -> None:
    gradient = trained(Federated(10, 8, SGD(0.3), clients=3), mlp(), digits)
    local = LocalSteps(mlp(), SGD(0.3))
    update = trained(Federated(10, 8, SGD(17.0), clients=3), local, digits)
    for name, values in gradient.items():
        np.testing.assert_allclose(update[name], values, atol=1e-5)


def test_it_learns_and_a_heavy_defence_costs(digits: Records) -> None:
    settings, step = Federated(250, 32, SGD(0.05, 0.9)), mlp()
    good = scored(step, trained(settings, step, digits), digits, seen=digits)
    noisy = trained(settings, defences.Noise(step, 0.3), digits)
    bad = scored(step, noisy, digits, seen=digits)
    assert good.accuracy is not None
    assert bad.accuracy is not None
    assert good.accuracy > 0.95
    assert bad.accuracy < good.accuracy - 0.1
    assert bad.loss > good.loss + 0.2


def test_rounds_of_an_adversary_are_not_rounds_of_a_client(digits: Records) -> None:
    settings = Federated(3, 8, SGD(0.1))
    once = trained(settings, defences.Noise(mlp(), 0.1), digits)
    several = trained(settings, Rounds(defences.Noise(mlp(), 0.1), 5), digits)
    for name, values in once.items():
        np.testing.assert_array_equal(several[name], values)


def test_defences_see_the_same_batches_and_start(digits: Records) -> None:
    """What a defence draws does not move the order: a defence that does nothing changes nothing."""
    settings = Federated(5, 8, SGD(0.1))
    quiet = trained(settings, defences.Noise(mlp(), 1e-30), digits)
    for name, values in trained(settings, mlp(), digits).items():
        np.testing.assert_array_equal(quiet[name], values)


def test_every_record_takes_part_once_an_epoch() -> None:
    settings = Federated(9, 10, SGD(0.1), clients=3)
    rounds = list(settings.batches(100, np.random.default_rng(0)))
    assert len(rounds) == 9
    assert all([len(batch) for batch in one] == [10, 10, 10] for one in rounds)
    for epoch in (rounds[:3], rounds[3:6], rounds[6:]):
        seen = np.concatenate([batch for one in epoch for batch in one])
        assert len(set(seen.tolist())) == 90


def test_poisson_sampling_is_by_chance_and_has_all_its_rounds() -> None:
    settings = Federated(400, 5, SGD(0.1), poisson=True)
    sizes = [len(one) for (one,) in settings.batches(50, np.random.default_rng(0))]
    assert len(sizes) == 400
    assert 0 in sizes
    # Binomial(50, 0.1): mean 5 with a standard error of 0.106, variance 4.5.
    assert abs(np.mean(sizes) - 5) < 0.4
    assert 3.5 < np.var(sizes) < 5.6


def test_private_rounds_divide_by_the_records_expected(digits: Records) -> None:
    """Sum of clipped gradients and noise over a fixed number, or the count would leak."""
    settings = Federated(1, 8, SGD(1.0), poisson=True)
    step = replace(mlp(), initial=Initialisation(seed=3))
    private = DPSGD(step, 0.5, 1e-12)
    moved = trained(settings, private, digits)
    ((chosen,),) = list(settings.batches(len(digits), np.random.default_rng(1)))
    assert len(chosen) not in (0, 8)
    objective, start = step.objective(), step.parameters()
    x = objective.tensor(digits.x[chosen])
    y = objective.responses(digits.labels[chosen])
    each = objective.gradients_each(objective.flat(start), x, y)
    clipped = each * (0.5 / each.norm(dim=1, keepdim=True)).clamp_max(1.0)
    total = objective.named(clipped.sum(dim=0) / 8)
    for name, values in total.items():
        np.testing.assert_allclose(start[name] - moved[name], values, atol=1e-6)


def test_a_private_round_without_records_is_noise(digits: Records) -> None:
    settings = Federated(1, 1, SGD(1.0), poisson=True)
    seed = next(
        s for s in range(50) if not len(next(settings.batches(300, np.random.default_rng(s)))[0])
    )
    step = replace(mlp(), initial=Initialisation(seed=3))
    start = step.parameters()
    silent = trained(settings, step, digits, seed)
    private = trained(settings, DPSGD(step, 0.5, 2.0), digits, seed)
    noise = np.concatenate([(private[n] - start[n]).ravel() for n in start])
    assert all(np.array_equal(silent[n], start[n].astype(np.float32)) for n in start)
    assert noise.std() == pytest.approx(1.0, rel=0.1)


def test_a_training_that_diverges_says_so(digits: Records) -> None:
    step = GradientStep(MLP((8, 8), 1, (8,)), None, Initialisation(seed=1))
    data = Records(digits.x, digits.labels.astype(np.float64))
    with pytest.raises(DivergedError, match=r"round \d+ of 200: .*infinity.*learning rate 1e\+06"):
        trained(Federated(200, 8, SGD(1e6)), step, data)
    with pytest.raises(DivergedError, match=r"round 1 of 2: the local steps diverged"):
        trained(Federated(2, 8, SGD(1.0)), LocalSteps(step, SGD(1e9), 60), data)


def test_what_it_refuses(digits: Records) -> None:
    with pytest.raises(InputError, match="rounds must be at least 1, got 0"):
        Federated(0, 8, SGD(0.1))
    with pytest.raises(InputError, match="a round needs 400 records, but there are 300"):
        trained(Federated(1, 100, SGD(0.1), clients=4), mlp(), digits)
    with pytest.raises(InputError, match="clients = 1, got 2"):
        Federated(1, 8, SGD(0.1), clients=2, poisson=True)
    from exhume.training import Training

    with pytest.raises(InputError, match="needs gradients or updates, not Training"):
        trained(Federated(1, 8, SGD(0.1)), Training(mlp().network, CLASSES), digits)


def test_what_a_training_guarantees() -> None:
    private = DPSGD(mlp(), 1.0, 2.0)
    one = dp_accounting.GaussianDpEvent(2.0)
    shuffled = Federated(25, 10, SGD(0.1)).event(private, 100)
    assert shuffled == dp_accounting.SelfComposedDpEvent(one, 3)
    sampled = Federated(25, 10, SGD(0.1), poisson=True).event(private, 100)
    expected = dp_accounting.PoissonSampledDpEvent(0.1, one)
    assert sampled == dp_accounting.SelfComposedDpEvent(expected, 25)
    nothing = dp_accounting.NonPrivateDpEvent()
    assert Federated(25, 10, SGD(0.1)).event(mlp(), 100) == nothing
    pruned = defences.Pruning(private, 0.5)
    assert Federated(25, 10, SGD(0.1)).event(pruned, 100) == shuffled
    assert Federated(25, 10, SGD(0.1), poisson=True).event(pruned, 100) == nothing


def test_scores_are_those_of_the_records_one_by_one(images: Records) -> None:
    """With batch normalisation, a record's score must not depend on who is tested beside it."""
    step = GradientStep(resnet20((28, 28), 10), CLASSES, Initialisation(seed=0))
    parameters = step.parameters()
    whole = scored(step, parameters, images, seen=images)
    alone = [scored(step, parameters, images.take([i]), seen=images) for i in range(8)]
    eight = scored(step, parameters, images.take(slice(0, 8)), seen=images)
    assert eight.loss == pytest.approx(np.mean([one.loss for one in alone]), rel=1e-5)
    assert eight.accuracy == np.mean([one.accuracy for one in alone])
    mode = replace(step, batch_norm="eval")
    assert scored(mode, parameters, images, seen=images).loss != pytest.approx(whole.loss, rel=0.01)


def test_statistics_of_normalisation_are_those_of_the_training_records(images: Records) -> None:
    step = GradientStep(resnet20((28, 28), 10), CLASSES, Initialisation(seed=0))
    parameters = step.parameters()
    objective = step.objective()
    x, y = objective.tensor(images.x), objective.responses(images.labels)
    # All training records as one batch: its own statistics are those kept, up to n/(n−1).
    direct = float(objective.losses(objective.flat(parameters), x, y).mean())
    assert scored(step, parameters, images, seen=images).loss == pytest.approx(direct, rel=0.05)


def test_scores_of_a_regression() -> None:
    step = GradientStep(MLP((3,), 1, (4,)), None, Initialisation(seed=0))
    rng = np.random.default_rng(0)
    data = Records(rng.normal(size=(1200, 3)), rng.normal(size=1200))
    found = scored(step, step.parameters(), data, seen=data)
    assert found.accuracy is None
    objective = step.objective()
    scores = objective.scores(objective.flat(step.parameters()), objective.tensor(data.x))
    errors = scores.detach().numpy()[:, 0] - data.labels
    assert found.loss == pytest.approx(0.5 * np.mean(errors**2), rel=1e-5)


def test_convolutions_in_a_private_loop_need_no_network_built_anew(
    images: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    build = ConvNet.build
    monkeypatch.setattr(ConvNet, "build", lambda self: built.append(1) or build(self))
    step = GradientStep(ConvNet((28, 28), 10, 2), CLASSES, Initialisation(seed=0))
    mechanism = DPSGD(step, 1.0, 0.1)
    trained(Federated(2, 4, SGD(0.1)), mechanism, images)
    few = len(built)
    trained(Federated(8, 4, SGD(0.1)), mechanism, images)
    assert len(built) - few <= few
