"""Defences and grids of them in an audit's TOML file, and the mechanisms that come of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exhume import defences
from exhume.audit import make_plan
from exhume.audit.defending import defended
from exhume.audit.threat_model import threat_model
from exhume.config import Config, parse
from exhume.config.defences import DefenceTable, listed_defences
from exhume.defences import Defence
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.training import SGD
from exhume.training.gradient import GradientStep, gradient_step
from exhume.training.local_steps import Aggregate, LocalSteps

TEXT = """
[data]
name = "digits"
shadow_targets = 20
[release]
kind = "{kind}"
model = "mlp"
hidden = [6, 5]
batch_size = 4
defences = [{before}]
{knowledge}
[audit]
targets = 4
[grid]
{grid}
"""


def parsed(
    grid: str = "", *, before: str = "", kind: str = "gradient", knowledge: str = ""
) -> Config:
    text = TEXT.format(grid=grid, before=before, kind=kind, knowledge=knowledge)
    return parse(text, folder=Path(), source="audit.toml")


def built(listed: str, **options: str) -> Mechanism:
    config = parsed(f"one = [{listed}]", **options)
    return make_plan(config).setting(1).mechanism


def refusal(grid: str, **options: str) -> str:
    with pytest.raises(InputError) as caught:
        make_plan(parsed(grid, **options)).setting(1)
    return str(caught.value)


def layers(mechanism: Mechanism) -> list[type]:
    """The kinds of a stack, outermost first."""
    found = [type(mechanism)]
    while not isinstance(mechanism, GradientStep):
        mechanism = mechanism.inner if isinstance(mechanism, Defence) else mechanism.client  # type: ignore[attr-defined]
        found.append(type(mechanism))
    return found


_LISTED = {
    "noise": ", size = 0.1",
    "rounding": ", decimals = 3",
    "clipping": ", norm = 2.0",
    "record-clipping": ", norm = 2.0",
    "dp-sgd": ", norm = 2.0, noise_multiplier = 1.0",
    "pruning": ', share = 0.9, scope = "global"',
    "top-k": ", count = 10",
    "gradient-dropout": ", rate = 0.5",
    "activation-dropout": ", rate = 0.5",
    "sign": "",
    "quantised": ", bits = 4, stochastic = true",
    "mixup": ", alpha = 0.3",
    "local-steps": ", steps = 2, learning_rate = 0.1",
    "secure-aggregation": ", clients = 2",
    "rounds": ", rounds = 3",
}


class TestGrids:
    def test_one_setting_without_and_one_with_each(self) -> None:
        config = parsed(
            '"noise .1" = [{ name = "noise", size = 0.1 }]\nsigns = [{ name = "sign" }]'
        )
        found = [(s.name, s.group, s.defence) for s in config.setting]
        assert found == [
            ("audit", "audit", ""),
            ("audit, noise .1", "audit", "noise .1"),
            ("audit, signs", "audit", "signs"),
        ]
        assert [len(s.release.defences) for s in config.setting] == [0, 1, 1]
        assert all(not s.grid for s in config.setting)

    def test_they_come_after_what_all_have(self) -> None:
        config = parsed('signs = [{ name = "sign" }]', before='{ name = "clipping", norm = 1.0 }')
        assert [[d.name for d in s.release.defences] for s in config.setting] == [
            ["clipping"],
            ["clipping", "sign"],
        ]

    def test_the_same_targets_and_the_same_network_in_all(self) -> None:
        plan = make_plan(parsed('signs = [{ name = "sign" }]'))
        one, other = plan.setting(0), plan.setting(1)
        assert one.targets is not None
        assert other.targets is not None
        assert one.targets.x.tobytes() == other.targets.x.tobytes()
        steps = [gradient_step(s.mechanism) for s in (one, other)]
        starts = [s.parameters() for s in steps if s is not None]
        assert all(starts[0][n].tobytes() == starts[1][n].tobytes() for n in starts[0])

    def test_the_threat_is_a_batch_behind_a_defence(self) -> None:
        said = threat_model(make_plan(parsed('signs = [{ name = "sign" }]')).setting(1))
        assert said[0].endswith("at its initialisation, signs only.")
        assert said[1].startswith("It was computed on a batch of 4 records (8 × 8 values each)")

    def test_without_a_grid_a_setting_stays_as_it_is(self) -> None:
        (only,) = parsed().setting
        assert (only.name, only.group, only.defence) == ("audit", "", "")


class TestStacks:
    @pytest.mark.parametrize("name", _LISTED)
    def test_each_by_its_name(self, name: str) -> None:
        mechanism = built(f'{{ name = "{name}"{_LISTED[name]} }}')
        kinds = layers(mechanism)
        assert len(kinds) == 2
        assert kinds[1] is GradientStep
        if issubclass(kinds[0], Defence):
            assert kinds[0].name == name

    def test_every_table_is_tried(self) -> None:
        names = {one.name for one in listed_defences()}
        assert names - {"output-perturbation"} == set(_LISTED)

    def test_in_the_order_of_the_list(self) -> None:
        mechanism = built(
            '{ name = "mixup" }, { name = "local-steps", steps = 2, learning_rate = 0.1 }, '
            '{ name = "pruning", share = 0.5 }, { name = "secure-aggregation", clients = 2 }, '
            '{ name = "noise", size = 0.1 }'
        )
        assert layers(mechanism) == [
            defences.Noise,
            Aggregate,
            defences.Pruning,
            LocalSteps,
            defences.MixUp,
            GradientStep,
        ]

    def test_settings_arrive(self) -> None:
        pruning = built('{ name = "pruning", share = 0.7, scope = "global" }')
        assert isinstance(pruning, defences.Pruning)
        assert (pruning.share, pruning.scope) == (0.7, "global")
        dp = built('{ name = "dp-sgd", norm = 2.0, noise_multiplier = 3.0 }')
        assert isinstance(dp, defences.DPSGD)
        assert (dp.norm, dp.noise_multiplier) == (2.0, 3.0)
        local = built('{ name = "local-steps", steps = 2, learning_rate = 0.3, different = true }')
        assert isinstance(local, LocalSteps)
        assert (local.epochs, local.optimiser) == (1, SGD(0.3))
        assert local.batches is not None
        assert local.batches.size == 2

    def test_in_an_update_what_belongs_into_a_step_goes_there(self) -> None:
        mechanism = built(
            '{ name = "pruning", share = 0.5 }, { name = "record-clipping", norm = 1.0 }',
            kind="update",
            knowledge="[knowledge]\ntraining = { learning_rate = 0.1, epochs = 2 }",
        )
        assert layers(mechanism) == [
            defences.Pruning,
            LocalSteps,
            defences.RecordClipping,
            GradientStep,
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("listed", "message"),
        [
            (
                '{ name = "prunning", share = 0.5 }',
                "there is no defence called 'prunning'; did you mean 'pruning'?",
            ),
            ("{ share = 0.5 }", "'grid.one.0.name' is missing"),
            ("{ name = 3 }", "grid.one.0.name: input should be a valid string, got 3"),
            ('{ name = "pruning", share = 1.5 }', "share: must be between 0 and 1, got 1.5"),
            ('{ name = "pruning", share = nan }', "share: must be between 0 and 1, got nan"),
            ('{ name = "noise", size = inf }', "size: must be a positive number, got inf"),
            ('{ name = "noise", size = "1" }', "size: input should be a valid number, got '1'"),
            ('{ name = "top-k", count = 1.5 }', "count: input should be a valid integer, got 1.5"),
            ('{ name = "pruning", share = 0.5, scope = "all" }', "should be 'layer' or 'global'"),
            ('{ name = "pruning", share = 0.5, skope = 1 }', "unknown key 'grid.one.0.skope'"),
            ('{ name = "pruning", share = 0.5, inner = 1 }', "unknown key 'grid.one.0.inner'"),
            ('{ name = "local-steps", steps = 1, learning_rate = 1 }', "steps: must be at least 2"),
            ('{ name = "pruning" }', "share' is missing"),
            (
                '{ name = "sign" }, { name = "mixup" }',
                "the defence 'mixup' changes a gradient step itself: it comes before",
            ),
            (
                '{ name = "local-steps", steps = 3, learning_rate = 0.1, different = true }',
                "4 records can't be dealt evenly to 3 local steps",
            ),
            (
                '{ name = "output-perturbation", noise_multiplier = 1.0, norm_bound = 2.0 }',
                "logistic",
            ),
        ],
    )
    def test_in_one_line(self, listed: str, message: str) -> None:
        text = refusal(f"one = [{listed}]")
        assert message in text
        assert "\n" not in text

    def test_a_grid_is_no_list(self) -> None:
        assert "grid" in refusal("one = 3")

    def test_a_name_for_each(self) -> None:
        assert "1 to 40 characters" in refusal('"" = [{ name = "sign" }]')

    def test_two_of_a_name_are_no_toml(self) -> None:
        assert "not valid TOML" in refusal('a = [{ name = "sign" }]\na = [{ name = "sign" }]')

    def test_weights_take_other_defences(self) -> None:
        from exhume.training import GLM, Family, Penalty

        model = GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1))
        table = DefenceTable.model_validate(
            {"name": "local-steps", "steps": 2, "learning_rate": 0.1}
        )
        with pytest.raises(InputError, match="is for gradients and updates; weights and answers"):
            defended(model, [table], 4)
