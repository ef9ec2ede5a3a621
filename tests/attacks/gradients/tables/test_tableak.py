"""Rows of a mixed table from gradients: searched with relaxed levels, or solved exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.attacks.gradients.tables.table_batches import OWN, SCHEMA, batch, knowing, step

from exhume.attacks import Attack, Cocktail, FirstLayer, Sparsity, TabLeak
from exhume.attacks.gradients.matching.attack import matchable
from exhume.attacks.gradients.matching.objectives import Cosine
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of
from exhume.attacks.gradients.tables.ensemble import pooled
from exhume.attacks.gradients.tables.relaxation import Relaxation
from exhume.attacks.gradients.tables.repair import Repair
from exhume.attacks.gradients.tables.restarts import releases_of
from exhume.defences import Noise, Pruning
from exhume.metrics import RMSE, RecordsRight, ValuesRight, match
from exhume.protocol.attack import Lacking
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.training import SGD, Batches
from exhume.training.local_steps import LocalSteps

SCALE = SCHEMA.scale(OWN.x)
SMALL = TabLeak(steps=500, restarts=8)


def rebuilt(
    attack: Attack, mechanism: Mechanism, client: Records, **known: object
) -> Reconstruction:
    release = mechanism.publish(client, rng=np.random.default_rng(0))
    return attack.reconstruct(release, knowing(mechanism, **known), rng=0)


def right(client: Records, found: Reconstruction) -> tuple[float, float]:
    """Return the shares of values and of whole records that are right within 0.01 deviations."""
    places = match(client.x, found.samples, RMSE(scale=SCALE)).indices
    assert (places >= 0).all()
    shares = [
        metric(schema=SCHEMA, scale=SCALE, tolerance=0.01)(client.x, found.samples[places]).mean()
        for metric in (ValuesRight, RecordsRight)
    ]
    return float(shares[0]), float(shares[1])


def test_a_batch_comes_back_cell_by_cell() -> None:
    client = batch(4)
    found = rebuilt(SMALL, step((100,)), client)
    assert found.status is Status.CONVERGED
    assert right(client, found) == (1.0, 1.0)
    assert sorted(found.labels) == sorted(client.labels)
    assert found.cell_confidence is not None
    assert found.cell_confidence.shape == (4, 10)


def test_a_step_of_local_training_gives_the_same_rows() -> None:
    client = batch(3)
    local = LocalSteps(step((60,)), SGD(0.05), epochs=2)
    found = rebuilt(SMALL, local, client, labels=client.y)
    assert right(client, found) == (1.0, 1.0)


@pytest.mark.parametrize("attack", [Cocktail(), Sparsity()], ids=["cocktail", "sparsity"])
def test_exact_attacks_return_rows_that_a_table_can_hold(attack: Attack) -> None:
    client = batch(8)
    found = rebuilt(attack, step((100, 100)), client)
    assert found.status is Status.CONVERGED
    assert right(client, found) == (1.0, 1.0)
    np.testing.assert_array_equal(found.samples, SCHEMA.snap(found.samples))


def test_one_row_is_divided_out() -> None:
    client = batch(1)
    found = rebuilt(FirstLayer(), step((20,)), client)
    levels = ~SCHEMA.numbers
    np.testing.assert_array_equal(found.samples[:, levels], client.x[:, levels])
    np.testing.assert_allclose(found.samples, client.x, rtol=1e-4)


def test_what_is_missing_is_named() -> None:
    mechanism, client = step((20,)), batch(2)
    release, known = mechanism.publish(client, rng=np.random.default_rng(0)), knowing(mechanism)
    assert "not rows of a table" in str(TabLeak().accepts(release, replace(known, schema=None)))
    reason = TabLeak().accepts(release, replace(known, shadow_targets=None))
    assert isinstance(reason, Lacking)
    assert "shadow_targets" in reason
    with pytest.raises(InputError, match="steps and restarts"):
        TabLeak(restarts=0)
    with pytest.raises(InputError, match="coldest <= hottest"):
        TabLeak(hottest=0.1, coldest=1.0)


# The parts


def reading_of(mechanism: Mechanism, client: Records, **known: object) -> MatchableRelease:
    release = mechanism.publish(client, rng=np.random.default_rng(0))
    found = matchable(release, knowing(mechanism, **known))
    assert isinstance(found, MatchableRelease)
    return found


MECHANISMS = {
    "gradient": step((20,)),
    "local steps": LocalSteps(step((20,)), SGD(0.1, momentum=0.5), 2, Batches(2, seed=3)),
    "noise": Noise(step((20,)), 0.1),
    "a defence": Pruning(step((20,)), 0.3),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_all_starts_in_one_pass_release_what_each_does(name: str) -> None:
    client = batch(4)
    parts = client.take([2, 3])
    reading = reading_of(MECHANISMS[name], client, fixed_set=client.take([0, 1]), labels=parts.y)
    problem = problem_of(reading, Cosine(), labels=parts.y, precision="float64")
    drawn = problem.frame.tensor(np.random.default_rng(0).normal(size=(3, 2, SCHEMA.width)))
    assert problem.labels is not None
    labels = problem.labels.expand(3, 2)
    together = releases_of(reading, problem)(drawn, labels)
    for i in range(3):
        for one, alone in zip(together, problem.simulate(drawn[i], labels[i]), strict=True):
            torch.testing.assert_close(one[i], alone, rtol=1e-9, atol=1e-12)


def test_a_relaxation_ends_at_rows_that_a_table_can_hold() -> None:
    relaxation = Relaxation.of(SCHEMA, OWN.x)
    free = torch.tensor(relaxation.start((5,), np.random.default_rng(0)))
    soft, hard = (relaxation.rows(free, t).numpy() for t in (3.0, 1e-4))
    for place in (p for c, p in zip(SCHEMA.columns, SCHEMA.places, strict=True) if c.levels):
        np.testing.assert_allclose(soft[:, place].sum(axis=1), 1.0)
        assert soft[:, place].max() < 0.95
    np.testing.assert_allclose(hard, SCHEMA.snap(hard), atol=1e-6)
    numbers = SCHEMA.numbers
    assert (hard[:, numbers] > relaxation.low[numbers]).all()
    assert (hard[:, numbers] < relaxation.high[numbers]).all()


def test_pooling_undoes_the_order_of_rows_and_says_where_searches_agree() -> None:
    rows, rng = np.asarray(batch(5).x), np.random.default_rng(0)
    orders = [np.arange(5), *(rng.permutation(5) for _ in range(6))]
    searches = np.stack([rows[order] for order in orders])
    labels = np.zeros(searches.shape[:2], dtype=int)
    losses = np.arange(7.0)
    agreed = pooled(SCHEMA, searches, losses, labels, SCALE)
    np.testing.assert_allclose(agreed.rows, rows)
    np.testing.assert_allclose(agreed.certainty, 1.0)
    # The first row's sex is wrong in three of seven searches, and its blood pressure varies.
    sex, pressure = (SCHEMA.places[SCHEMA.place(name)] for name in ("sex", "bp"))
    for search, order in list(zip(searches, orders, strict=True))[4:]:
        place = int(np.flatnonzero(order == 0)[0])
        search[place, sex] = search[place, sex][::-1]
        search[place, pressure] += 20.0
    doubted = pooled(SCHEMA, searches, losses, labels, SCALE)
    np.testing.assert_allclose(SCHEMA.snap(doubted.rows), rows)
    doubts = {(0, SCHEMA.place("sex")), (0, SCHEMA.place("bp"))}
    assert {tuple(map(int, cell)) for cell in np.argwhere(doubted.certainty < 0.999)} == doubts


def test_rows_of_other_labels_are_not_mixed() -> None:
    rows = np.asarray(batch(2).x)
    searches = np.stack([rows, rows[::-1]])
    labels = np.array([[0, 1], [0, 1]])
    found = pooled(SCHEMA, searches, np.array([0.0, 1.0]), labels, SCALE)
    assert found.certainty.min() < 0.5


@pytest.mark.parametrize("wrong", ["a level", "a label", "a number"])
def test_what_is_wrong_is_repaired(wrong: str) -> None:
    client = batch(3)
    reading = reading_of(step((60,)), client)
    problem = problem_of(reading, Cosine(), labels=client.y, precision="float64")
    repair = Repair(problem, SCHEMA, releases_of(reading, problem), labels_free=True, changes=10)
    rows, labels = np.array(client.x), problem.frame.tensor(client.labels).long()
    age, pressure = (SCHEMA.places[SCHEMA.place(name)] for name in ("age", "bp"))
    if wrong == "a level":
        rows[0, age] = np.roll(rows[0, age], 1)
    elif wrong == "a label":
        labels[2] = 1 - labels[2]
    else:
        rows[1, pressure] += 1.5
    better, answers, left = repair.improved(problem.frame.tensor(rows), labels)
    assert left < 1e-10
    np.testing.assert_allclose(better.numpy(), client.x, rtol=1e-4, atol=1e-12)
    assert answers.tolist() == client.labels.tolist()
