"""Networks in an audit's TOML file, and the mechanisms that come of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exhume.audit.build_mechanism import build_mechanism
from exhume.config import NetworkReleaseTable, parse
from exhume.defences import Noise, Rounding
from exhume.models import CNN, MLP, Activation, Convolution, Scheme
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.training import (
    SGD,
    Adam,
    Answers,
    Augmentation,
    Batches,
    CosineDecay,
    DPClipping,
    OneCycle,
    RMSprop,
    StepDecay,
    Training,
    WarmUp,
)

TEXT = """
[data]
name = "fashion-mnist-small"
fixed_set = 60
[release]
model = "mlp"
{release}
[knowledge]
training = {{ learning_rate = 0.2, epochs = 7{training} }}
{knowledge}
"""
IMAGES = Records(np.random.default_rng(0).random((12, 9, 9)), np.arange(12) % 3)


def text(release: str = "", training: str = "", knowledge: str = "") -> str:
    return TEXT.format(release=release, training=training, knowledge=knowledge)


def built(toml: str, records: Records = IMAGES, *, seed: int = 4) -> Mechanism:
    config = parse(toml, folder=Path(), source="audit.toml")
    return build_mechanism(config.setting[0], records, seed=seed)


def refusal(toml: str) -> str:
    with pytest.raises(InputError) as caught:
        parse(toml, folder=Path(), source="audit.toml")
    return str(caught.value)


class TestMechanisms:
    def test_the_default_is_full_batch_descent_from_a_known_start(self) -> None:
        training = built(text())
        assert training == Training(
            MLP((9, 9), 3), (0, 1, 2), SGD(0.2), 7, initial=training.initial
        )
        assert training.initial.seed == 4
        assert training.deterministic

    def test_everything_said_is_done(self) -> None:
        training = built(
            text(
                'hidden = [8, 4]\nactivation = "tanh"',
                ', momentum = 0.9, weight_decay = 0.01, batch_size = 5, initialisation = "he"',
            )
        )
        assert training.network == MLP((9, 9), 3, (8, 4), Activation.TANH)
        assert training.optimiser == SGD(0.2, 0.9, 0.01)
        assert training.batches == Batches(5, 4)
        assert training.initial.scheme is Scheme.HE

    def test_convolutions(self) -> None:
        toml = text("convolutions = [{ filters = 4, kernel = 3, stride = 2 }]")
        training = built(toml.replace('"mlp"', '"cnn"'))
        assert training.network == CNN((9, 9), 3, (Convolution(4, 3, 2),))

    def test_what_the_adversary_does_not_know_has_no_seed(self) -> None:
        toml = text(training=", batch_size = 5", knowledge="initial = false\norder = false")
        training = built(toml)
        assert training.initial.seed is None
        assert training.batches.seed is None
        assert not training.deterministic

    def test_private_training(self) -> None:
        training = built(
            text(
                training=", optimiser = 'adam', batch_size = 5, poisson = true, "
                "clipping = { norm = 1.0, noise_multiplier = 2.0 }"
            )
        )
        assert training.optimiser == Adam(0.2)
        assert training.clipping == DPClipping(1.0, 2.0)
        assert training.batches == Batches(5, 4, poisson=True)

    def test_answers_and_noise(self) -> None:
        toml = text(
            'kind = "outputs"\nqueries = 6\n'
            'defences = [{ name = "noise", size = 0.1 }, { name = "rounding", decimals = 2 }]'
        )
        mechanism = built(toml)
        assert isinstance(mechanism, Rounding)
        assert isinstance(mechanism.inner, Noise)
        assert isinstance(mechanism.inner.inner, Answers)
        assert mechanism.inner.inner.queries.shape == (6, 9, 9)

    def test_fractions_are_responses(self) -> None:
        responses = Records(IMAGES.x, np.linspace(0.0, 1.0, 12))
        assert built(text(), responses).classes is None
        assert built(text(), responses).network.outputs == 1

    def test_output_perturbation_has_no_bound_on_a_network(self) -> None:
        noise = '{ name = "output-perturbation", noise_multiplier = 1.0, norm_bound = 9.0 }'
        with pytest.raises(InputError, match="needs a logistic or multinomial model"):
            built(text(f"defences = [{noise}]"))


class TestRefusals:
    @pytest.mark.parametrize(
        ("release", "training", "knowledge", "complaint"),
        [
            ("penalty = { strength = 1.0 }", "", "", "unknown key 'release.penalty'"),
            ("hidden = [0]", "", "", "release.hidden.0: input should be greater"),
            ("convolutions = []", "", "", "convolutions goes with model = 'cnn', not with 'mlp'"),
            ("activation = 'step'", "", "", "release.activation"),
            ("", ", momentum = 1.0", "", "knowledge.training.momentum"),
            ("", ", optimiser = 'lbfgs'", "", "knowledge.training.optimiser"),
            ("", ", optimiser = 'adam', momentum = 0.5", "", "momentum goes with optimiser"),
            ("", ", poisson = true", "", "poisson sampling needs a batch_size"),
            ("", ", epoch = 3", "", "unknown key 'knowledge.training.epoch'"),
            ("", "", "initial = 'x.npz'", "knowledge.initial as a file goes with release.file"),
            ("", "", "shadow_targets = 'x.npz'", "data.shadow_targets is the number to set aside"),
        ],
    )
    def test_in_one_line(self, release: str, training: str, knowledge: str, complaint: str) -> None:
        line = refusal(text(release, training, knowledge))
        assert complaint in line
        assert "\n" not in line

    def test_a_network_needs_its_training(self) -> None:
        toml = '[data]\nname = "digits"\n[release]\nmodel = "mlp"'
        assert refusal(toml).startswith("audit.toml: a network needs knowledge.training: optimiser")

    def test_of_several_settings_the_wrong_one_is_named(self) -> None:
        one = '[[setting]]\nname = "{}"\nrelease = {{ model = "{}" }}\ndata.name = "digits"\n'
        toml = one.format("linear", "logistic") + one.format("deep", "mlp")
        assert "setting 'deep': a network needs knowledge.training" in refusal(toml)

    def test_a_linear_model_has_none(self) -> None:
        toml = text().replace('"mlp"', '"ridge"')
        assert "knowledge.training, initial, order and draws go with networks" in refusal(toml)

    def test_diverging_batches_under_clipping(self) -> None:
        toml = text(training=", batch_size = 5, clipping = { norm = 1.0, noise_multiplier = 1.0 }")
        with pytest.raises(InputError, match="poisson = true"):
            built(toml)

    def test_foreign_models_are_told_apart(self) -> None:
        table = (
            parse(text().replace('"mlp"', '"nets:make"'), folder=Path(), source="audit.toml")
            .setting[0]
            .release
        )
        assert isinstance(table, NetworkReleaseTable)
        assert table.foreign


class TestRefinedTrainings:
    def test_everything_said_of_a_loop_is_done(self) -> None:
        made = built(
            text(
                training=', optimiser = "adamw", beta1 = 0.8, gradient_norm = 1.5, batch_size = 4, '
                "label_smoothing = 0.1, class_weights = [1.0, 2.0, 0.5], stop_after = 9, "
                'schedule = { name = "cosine", per = "step", warm_up = 5, warm_up_from = 0.1 }, '
                "augmentation = { flip = 0.5, crop = 1 }, draw_seed = 11"
            )
        )
        assert isinstance(made, Training)
        assert made.optimiser == Adam(0.2, 0.8, weight_decay=0.01, decoupled=True)
        assert made.schedule == WarmUp(5, 0.1, CosineDecay(per="step"), "step")
        assert (made.gradient_norm, made.label_smoothing, made.stop_after) == (1.5, 0.1, 9)
        assert made.class_weights == (1.0, 2.0, 0.5)
        assert made.augmentation == Augmentation(0.5, 1)
        assert made.draw_seed == 11
        assert made.deterministic

    @pytest.mark.parametrize(
        ("training", "expected"),
        [
            ("momentum = 0.9, nesterov = true", SGD(0.2, 0.9, nesterov=True)),
            ('optimiser = "adam"', Adam(0.2)),
            ('optimiser = "adamw", weight_decay = 0.0', Adam(0.2, decoupled=True)),
            (
                'optimiser = "rmsprop", smoothing = 0.9, centred = true, momentum = 0.5',
                RMSprop(0.2, 0.9, momentum=0.5, centred=True),
            ),
        ],
    )
    def test_optimisers(self, training: str, expected: object) -> None:
        assert built(text(training=f", {training}")).optimiser == expected

    @pytest.mark.parametrize(
        ("schedule", "expected"),
        [
            ('name = "step", every = 3', StepDecay(3)),
            ('name = "step", after = [2, 5], factor = 0.5', StepDecay(None, (2, 5), 0.5)),
            ('name = "one-cycle", momentum = false', OneCycle(momentum=None)),
            ('name = "one-cycle", rising = 0.5, linear = true', OneCycle(0.5, linear=True)),
            ('name = "constant", warm_up = 4', WarmUp(4)),
        ],
    )
    def test_schedules(self, schedule: str, expected: object) -> None:
        assert built(text(training=f", schedule = {{ {schedule} }}")).schedule == expected

    def test_draws_that_the_adversary_lacks_are_secret(self) -> None:
        made = built(text(training=", augmentation = { flip = 0.5 }", knowledge="draws = false"))
        assert made.draw_seed is None
        assert not made.deterministic

    @pytest.mark.parametrize(
        ("training", "complaint"),
        [
            ('optimiser = "lion"', "'sgd', 'adam', 'adamw' or 'rmsprop'"),
            ('optimiser = "adam", momentum = 0.9', "momentum goes with optimiser = 'sgd' and 'rm"),
            ("beta1 = 0.8", "beta1 goes with optimiser = 'adam' and 'adamw', not with 'sgd'"),
            ("nesterov = true", "nesterov needs a momentum above 0"),
            ('schedule = { name = "step" }', "needs every or after"),
            ('schedule = { name = "cosine", every = 3 }', "every goes with schedule.name = 'step'"),
            ('schedule = { name = "constant" }', "a constant rate needs no schedule"),
            ("augmentation = { }", "needs flip or crop above 0"),
            ("label_smoothing = 1.0", "label_smoothing"),
            ("class_weights = [1.0, 0.0, 1.0]", "class_weights"),
        ],
    )
    def test_what_does_not_fit_is_named(self, training: str, complaint: str) -> None:
        assert complaint in refusal(text(training=f", {training}"))

    def test_class_weights_are_as_many_as_classes(self) -> None:
        with pytest.raises(InputError, match="class_weights has 2 numbers for 3 classes"):
            built(text(training=", class_weights = [1.0, 2.0]"))
