"""What the parts declare: configurations that a file could have, at all three scales."""

from __future__ import annotations

import pytest

from exhume.audit import make_plan
from exhume.config import NetworkReleaseTable
from exhume.protocol.errors import InputError
from exhume.studies import Scale, find, papers, parts
from exhume.studies.balle2022.private import noise_multiplier

ALL = parts("balle2022")


@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("part", ALL, ids=lambda part: part.name)
def test_is_a_plan(part, scale):
    plan = make_plan(part.config(part.size(scale), seed=3))
    assert plan.config.audit.seed == 3
    names = [table.name for table in plan.config.setting]
    read = [row.measured.setting for row in part.rows(part.size(scale))]
    assert len(set(names)) == len(names)
    assert set(names) & set(read) or part.name == "oracle"
    wanted = {attack.name for attack in plan.attacks}
    assert set(part.attacks) <= wanted


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.name)
def test_rows_have_labels_of_their_own(part):
    labels = [row.label for row in part.rows(part.size(Scale.PAPER))]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("paper", papers())
def test_headlines_are_rows_of_their_part_at_the_papers_size(paper):
    declared = [part for part in parts(paper) if part.headlines]
    assert len(declared) > 2
    for part in declared:
        size = part.size(Scale.PAPER)
        laptop = {row.label for row in part.rows(part.size(Scale.LAPTOP))}
        assert set(part.headlines) <= laptop, part.name
        assert size.describe()


def test_the_papers_sizes():
    part = find("balle2022", "default")
    table, inverted = part.config(part.size(Scale.PAPER), seed=0).setting
    assert (table.attacks, inverted.attacks) == (
        *(("reconstructor", "ridge"), ("trajectory-inversion",)),
    )
    assert (table.targets, inverted.targets) == (None, 200)
    assert inverted.data == table.data
    assert (table.data.fixed_set, table.data.shadow_targets, table.data.whole) == (
        *(10_000, 59_000),
        True,
    )
    training = table.knowledge.training
    assert (training.learning_rate, training.momentum, training.epochs) == (0.2, 0.9, 100)
    assert isinstance(table.release, NetworkReleaseTable)
    assert (table.release.hidden, table.release.activation) == ((10,), None)
    options = {one.attack: one.values() for one in table.options}
    assert options["reconstructor"] == {"epochs": 100, "hidden": (1000, 1000), "shadows": 59_000}


def test_cifars_network_is_that_of_table_vi():
    part = find("balle2022", "default-cifar")
    (table,) = part.config(part.size(Scale.PAPER), seed=0).setting
    kinds = [(c.filters, c.kernel, c.stride, c.padding) for c in table.release.convolutions]
    assert (table.release.model, kinds) == ("cnn", [(16, 4, 2, 0), (32, 4, 1, 0)])


class TestChanges:
    def test_values_are_read_as_the_keys_are(self):
        size = find("balle2022", "width").size(
            Scale.SMOKE, ["targets=3", "values=1,5", "learning_rate=0.5", "data=mnist"]
        )
        assert (size.targets, size.values, size.learning_rate, size.data) == (
            *(3, (1.0, 5.0), 0.5),
            "mnist",
        )

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("size=3", "one of the keys data, shadow_targets"),
            ("targets", "key=value"),
            ("targets=many", "targets takes a number"),
            ("values=1,x", "values takes numbers"),
        ],
    )
    def test_others_are_refused(self, text, words):
        with pytest.raises(InputError, match=words):
            find("balle2022", "width").size(Scale.SMOKE, [text])


def test_what_is_not_there_is_named():
    with pytest.raises(InputError, match="did you mean 'balle2022'"):
        parts("balle2023")
    with pytest.raises(InputError, match="did you mean 'width'"):
        find("balle2022", "widths")


@pytest.mark.parametrize(("epsilon", "steps"), [(1.0, 1), (10.0, 100), (30.0, 20)])
def test_noise_is_what_the_accountant_asks_for(epsilon, steps):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    noise = noise_multiplier(epsilon, steps)
    accountant = PLDAccountant()
    accountant.compose(
        dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise), steps)
    )
    assert accountant.get_epsilon(1e-5) == pytest.approx(epsilon, rel=0.02)
