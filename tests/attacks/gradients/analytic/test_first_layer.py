"""Records read straight off the first layer, and gradients that aren't the network's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.gradients.analytic.gradient_cases import (
    IMAGES,
    attacked,
    decibels,
    image_batch,
    image_step,
    small_records,
    small_step,
)

from exhume.attacks import Attack
from exhume.attacks.gradients.analytic import Cocktail, FirstLayer, Imprint, Sparsity
from exhume.models import CNN, MLP, Activation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Update
from exhume.training import SGD
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps


class TestOneRecord:
    @pytest.mark.parametrize("activation", list(Activation))
    def test_is_exact_behind_any_activation(self, activation: Activation) -> None:
        """Float32 gradients; a mean-colour guess of such images scores about 10 dB."""
        data = image_batch(1)
        release, knowledge = attacked(image_step(32, activation), data)
        found = FirstLayer().reconstruct(release, knowledge, rng=0)
        assert found.status is Status.CONVERGED
        assert decibels(data, found)[0] > 90.0
        assert found.labels is not None
        assert found.labels.tolist() == data.labels.tolist()

    def test_the_error_estimate_covers_the_error(self) -> None:
        data = image_batch(1)
        release, knowledge = attacked(image_step(32), data)
        noisy = {
            name: values + 1e-4 * np.random.default_rng(1).normal(size=values.shape)
            for name, values in release.gradients.items()
        }
        found = FirstLayer().reconstruct(Gradient(noisy, 1), knowledge, rng=0)
        error = float(np.sqrt(np.mean((found.samples[0] - data.x[0]) ** 2)))
        assert found.error_estimate is not None
        assert 0.1 * found.error_estimate[0] < error < 2.0 * found.error_estimate[0]

    def test_all_but_one_known(self) -> None:
        data = image_batch(9)
        release, knowledge = attacked(image_step(32, Activation.ELU), data)
        informed = replace(knowledge, fixed_set=data.take(np.arange(8)))
        found = FirstLayer().reconstruct(release, informed, rng=0)
        assert decibels(data.take([8]), found)[0] > 80.0

    def test_from_one_local_step_with_weight_decay(self) -> None:
        data = image_batch(1)
        local = LocalSteps(image_step(32), SGD(0.05, weight_decay=1e-2))
        update = local.publish(data, rng=np.random.default_rng(0))
        knowledge = Knowledge(record_shape=(28, 28), training=local)
        found = FirstLayer().reconstruct(update, knowledge, rng=0)
        assert decibels(data, found)[0] > 60.0


class TestBatches:
    def test_lone_neurons_give_their_records(self) -> None:
        """Biases so low that a neuron fires for one record in dozens."""
        step = image_step(1024)
        data = image_batch(4)
        state = dict(step.parameters())
        first = data.x.reshape(4, -1) @ state["1.weight"].T
        state["1.bias"] = -np.quantile(first, 0.9, axis=0)
        release, knowledge = attacked(replace(step, state=state), data)
        found = FirstLayer().reconstruct(release, knowledge, rng=0)
        assert len(found) >= 3
        assert np.sort(decibels(data, found))[1:].min() > 80.0

    def test_without_lone_neurons_it_says_so(self) -> None:
        release, knowledge = attacked(image_step(64, Activation.TANH), image_batch(4))
        found = FirstLayer().reconstruct(release, knowledge, rng=0)
        assert (found.status, len(found)) == (Status.NO_INFORMATION, 0)


STEP = small_step()
RELEASE = STEP.publish(small_records(1), rng=np.random.default_rng(0))


def changed(**arrays: np.ndarray | None) -> Gradient:
    """The release with some gradients replaced, or left out."""
    named = {name.replace("_", "."): values for name, values in arrays.items()}
    kept = {n: named.get(n, a) for n, a in RELEASE.gradients.items()}
    added = {n: a for n, a in named.items() if n not in kept}
    return Gradient({n: a for n, a in (kept | added).items() if a is not None}, 1)


@pytest.mark.parametrize("attack", [FirstLayer(), Cocktail(), Sparsity()], ids=lambda a: a.name)
class TestRefusals:
    knowledge = Knowledge(record_shape=(4, 4), training=STEP)

    def refused(self, attack: Attack, release: object, knowledge: Knowledge) -> str:
        found = attack.reconstruct(release, knowledge, rng=0)  # type: ignore[arg-type]
        assert found.status in (Status.REFUSED, Status.UNINFORMED)
        return found.message

    def test_missing_layers(self, attack: Attack) -> None:
        without = self.refused(attack, changed(**{"1_weight": None}), self.knowledge)
        assert "'1.weight' was not released" in without
        scaleless = self.refused(attack, changed(**{"1_bias": None}), self.knowledge)
        assert "'1.bias' was not released" in scaleless

    def test_later_layers_may_be_missing(self, attack: Attack) -> None:
        release = changed(**{"3_weight": None, "5_weight": None, "5_bias": None})
        assert attack.reconstruct(release, self.knowledge, rng=0).status is Status.CONVERGED

    def test_transposed_weights(self, attack: Attack) -> None:
        turned = changed(**{"1_weight": RELEASE.gradients["1.weight"].T})
        message = self.refused(attack, turned, self.knowledge)
        assert "(16, 24)" in message
        assert "it is transposed" in message

    def test_wrong_shapes_and_names(self, attack: Attack) -> None:
        message = self.refused(attack, changed(**{"5_bias": np.ones(4)}), self.knowledge)
        assert "'5.bias' has shape (4,), the network's has (3,)" in message
        stranger = self.refused(attack, changed(**{"fc_bias": np.ones(4)}), self.knowledge)
        assert "no parameter 'fc.bias'" in stranger

    def test_convolutions(self, attack: Attack) -> None:
        step = GradientStep(CNN((12, 12), 3), (0, 1, 2))
        data = Records(np.random.default_rng(0).random((1, 12, 12)), np.array([1]))
        release, knowledge = attacked(step, data)
        assert "first layer of a network of 2 convolutions" in self.refused(
            attack, release, knowledge
        )

    def test_secret_parameters(self, attack: Attack) -> None:
        step = replace(STEP, initial=replace(STEP.initial, seed=None))
        knowledge = replace(self.knowledge, training=step)
        assert "parameters" in self.refused(attack, RELEASE, knowledge)

    def test_several_local_steps(self, attack: Attack) -> None:
        release = Update(RELEASE.gradients, 1, 3)
        knowledge = replace(self.knowledge, training=LocalSteps(STEP, SGD(0.1), 3))
        assert "has 3 steps" in self.refused(attack, release, knowledge)

    def test_a_fixed_set_that_fills_the_batch(self, attack: Attack) -> None:
        knowledge = replace(self.knowledge, fixed_set=small_records(1))
        assert "shadow targets" in self.refused(attack, RELEASE, knowledge)

    def test_zero_and_too_many_directions(self, attack: Attack) -> None:
        nothing = changed(**{"1_weight": np.zeros((24, 16)), "1_bias": np.zeros(24)})
        assert attack.reconstruct(nothing, self.knowledge, rng=0).status is Status.NO_INFORMATION
        four = STEP.publish(small_records(4), rng=np.random.default_rng(0))
        claimed = Gradient(four.gradients, 2)
        found = attack.reconstruct(claimed, self.knowledge, rng=0)
        assert found.status is Status.WRONG_ASSUMPTION
        assert "more directions than 2 records" in found.message


def test_a_network_without_bias_is_refused() -> None:
    from exhume.attacks.gradients.analytic.input_layer import input_layer_of
    from exhume.attacks.gradients.analytic.read_gradient import mismatch

    layer = input_layer_of(MLP((4, 4), 3, (24, 8)))
    assert not isinstance(layer, str)
    bare = replace(layer, bias=None)
    assert "no bias" in str(mismatch(STEP, RELEASE.gradients, bare))


class TestCertificates:
    def test_an_imprints_mixtures_are_not_certified(self) -> None:
        """Neighbouring bins see the same mixture: two neurons agree, and neither saw one record."""
        own = IMAGES.take(np.arange(800))
        knowledge = Knowledge(
            record_shape=(28, 28), value_range=(0.0, 1.0), training=image_step(16)
        )
        crafted = Imprint(bins=64, measurements=1).craft(replace(knowledge, shadow_targets=own), 0)
        data = image_batch(2)
        release, informed = attacked(crafted, data)
        found = FirstLayer().reconstruct(release, informed, rng=0)
        assert len(found) == 2
        assert found.status is Status.APPROXIMATE
        assert "does not reproduce the gradient" in found.message
        assert decibels(data, found).min() < 40.0

    def test_records_that_all_return_are(self) -> None:
        """Each neuron fires for one of two records alone, and labels come along."""
        step = image_step(512)
        data = image_batch(2)
        state = dict(step.parameters())
        first = data.x.reshape(2, -1) @ state["1.weight"].T
        state["1.bias"] = -first.mean(axis=0)
        release, knowledge = attacked(replace(step, state=state), data)
        found = FirstLayer().reconstruct(release, knowledge, rng=0)
        assert found.status is Status.CONVERGED
        assert decibels(data, found).min() > 80.0
        assert found.labels is not None
        assert sorted(found.labels) == sorted(data.labels)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("attack", [FirstLayer(), Cocktail(), Sparsity()], ids=lambda a: a.name)
def test_normalised_inputs_are_named(attack: Attack, count: int) -> None:
    """The client saw (x − mean)/deviation; the adversary believes in [0, 1]."""
    data = image_batch(count)
    inside = Records((data.x - 0.29) / 0.35, data.y)
    step = image_step(256)
    release, knowledge = attacked(step, inside)
    found = attack.reconstruct(release, replace(knowledge, value_range=(0.0, 1.0)), rng=0)
    if attack.name == "first-layer" and count > 1:
        assert found.status is not Status.CONVERGED
        return
    assert found.status is Status.WRONG_ASSUMPTION
    assert "they were normalised" in found.message
    low, high = inside.x.min(), inside.x.max()
    assert decibels(Records((inside.x - low) / (high - low), data.y), found).min() > 40.0
