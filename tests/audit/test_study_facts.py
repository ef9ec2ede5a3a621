"""What settings can say for studies, and what is measured for them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.audit import small

from exhume.audit import Serial, run
from exhume.audit.target_influence import followed, roughness
from exhume.models.initialise import GivenInitialisation
from exhume.protocol.errors import InputError
from exhume.runlog.codec import encoded
from exhume.training import Training

NETWORK = """
[[setting]]
name = "network"
data = {{ name = "digits", fixed_set = 40{data} }}
release = {{ model = "mlp", hidden = [6]{release} }}
[setting.knowledge.training]
learning_rate = 0.2
epochs = 5{training}
{options}
"""


def network(data: str = "", release: str = "", training: str = "", options: str = "") -> str:
    return NETWORK.format(data=data, release=release, training=training, options=options)


class TestOptions:
    def test_an_attack_gets_its_own(self):
        options = "[setting.options.ridge]\nshadows = 30\nlayers = ['3']"
        plan = small.plan(network(options=options), small.audit(4, attacks='["ridge"]'))
        (ridge, *_) = plan.attacks_on(plan.units()[0])
        assert (ridge.name, ridge.shadows, ridge.layers) == ("ridge", 30, ("3",))

    def test_settings_differ(self):
        plain = network().replace('"network"', '"plain"')
        options = "[setting.options.ridge]\nshadows = 30"
        plan = small.plan(plain, network(options=options), small.audit(4, attacks='["ridge"]'))
        found = [plan.attacks_on(unit)[0].shadows for unit in plan.units()]
        assert found == [3000, 30]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ("[setting.options.ridge]\nshadow = 3", "ridge has no option 'shadow'; "),
            ("[setting.options.glm]\nrehearsals = 3", "options for 'glm', which is not run"),
            ("[setting.options.ridge]\nshadows = 3", "shadows must be at least 8"),
        ],
    )
    def test_others_are_refused(self, options, words):
        with pytest.raises(InputError, match=words):
            small.plan(network(options=options), small.audit(4, attacks='["ridge"]'))


class TestData:
    def test_a_seed_of_its_own_starts_elsewhere(self):
        settings = [
            small.plan(network(training=text), small.audit(4)).setting(0)
            for text in ("", "\nseed = 0", "\nseed = 1")
        ]
        seeds = [setting.mechanism.initial.seed for setting in settings]
        assert seeds == [0, 0, 1]
        assert np.array_equal(settings[0].targets.x, settings[2].targets.x)

    def test_shadow_targets_from_another_set(self):
        data = ", classes = [0, 1, 2], shadow_targets = 50, shadow_targets_from = 'digits'"
        setting = small.plan(network(data=data), small.audit(4)).setting(0)
        assert len(setting.shadow_targets) == 50
        assert set(setting.shadow_targets.labels) <= {0, 1, 2}
        known = {row.tobytes() for row in (*setting.fixed_set.x, *setting.targets.x)}
        assert not known & {row.tobytes() for row in setting.shadow_targets.x}

    def test_an_earlier_training_is_where_it_starts(self):
        plain = small.plan(network(), small.audit(4)).setting(0)
        later = small.plan(network(data=", before = 100"), small.audit(4)).setting(0)
        assert isinstance(later.mechanism.initial, GivenInitialisation)
        assert len(plain.reserve) - len(later.reserve) == 100
        assert np.array_equal(plain.targets.x, later.targets.x)
        earlier = plain.reserve.take(slice(0, 100))
        expected = plain.mechanism.publish(earlier, rng=np.random.default_rng(0)).parameters
        start = later.mechanism.initial.draw(later.mechanism.network, rng=np.random.default_rng(0))
        for name, values in expected.items():
            assert np.allclose(start[name], values)


def _trained(activation: str) -> tuple[float, float]:
    release = f", activation = '{activation}'"
    setting = small.plan(network(release=release), small.audit(4)).setting(0)
    assert isinstance(setting.mechanism, Training)
    return followed(setting, 0, seed=0)


def test_relu_leaves_more_parameters_alone():
    (norm, dead), (other, more) = _trained("elu"), _trained("relu")
    assert norm > 0
    assert other > 0
    assert 0 <= dead < more < 1


def test_roughness_is_that_of_neighbours():
    assert roughness(np.ones((3, 3))) == 0.0
    assert roughness(np.tile([0.0, 1.0], (4, 2))) == pytest.approx(0.5)


def test_what_a_study_reads_is_in_the_summary(tmp_path):
    text = small.audit(6, attacks='["ridge"]', metrics='["mse", "ncc"]', membership="20")
    text += "\ninfluence = true"
    plan = small.plan(network(data=", shadow_targets = 60"), text)
    summary = encoded(run(plan, tmp_path / "run", Serial()))
    (facts,) = summary["settings"]
    nearest = small.load_file(tmp_path / "run" / "artefacts" / "000-truth.safetensors")
    assert facts["nearest_mse"] == pytest.approx(np.square(nearest["nearest_distance"]).mean())
    assert facts["membership_test"] == "retraining"
    assert facts["membership_auc"] == 1.0
    assert facts["training_utility"] > facts["utility"]
    assert 0.5 < facts["loss_auc"] < 1.0
    row = next(r for r in summary["rows"] if r["attack"] == "ridge")
    assert set(row["metrics"]) == {"mse", "ncc", "gradient-norm", "dead-gradients", "roughness"}
    assert row["correlations"]["mse~ncc"] < 0
