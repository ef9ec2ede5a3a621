"""Transcripts of trainings: every step as it was taken, in files and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from exhume.data.array_files import read_arrays, write_arrays
from exhume.defences import DPSGD
from exhume.models import MLP
from exhume.models.initialise import Initialisation
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Transcript, mapped, non_finite
from exhume.training import SGD, Batches, DPClipping, Recorded, Training
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps

PRIVATE = Training(
    MLP((4,), 3, (5,)), (0, 1, 2), SGD(0.3, 0.5), epochs=6, clipping=DPClipping(0.7, 1.5)
)
SAMPLED = replace(PRIVATE, epochs=3, batches=Batches(6, seed=None, poisson=True))


def _data(count: int = 20) -> Records:
    rng = np.random.default_rng(0)
    return Records(rng.normal(size=(count, 4)), rng.integers(3, size=count))


def _published(training: Training | LocalSteps, every: int = 1) -> Transcript:
    return Recorded(training, every).publish(_data(), rng=np.random.default_rng(5))


@pytest.mark.parametrize("training", [PRIVATE, SAMPLED], ids=["full", "poisson"])
def test_the_recorded_gradients_lead_from_step_to_step(training: Training) -> None:
    found = _published(training)
    objective = training.objective()
    theta = objective.flat({n: a[0] for n, a in found.parameters.items()})
    state = training.optimiser.start(theta)
    for number in range(len(found)):
        at = objective.flat({n: a[number] for n, a in found.parameters.items()})
        torch.testing.assert_close(at, theta)
        gradient = objective.flat({n: a[number] for n, a in found.gradients.items()})
        theta, state = training.optimiser.step(theta, gradient, state)
    torch.testing.assert_close(objective.flat(found.final), theta)


@pytest.mark.parametrize("training", [PRIVATE, SAMPLED], ids=["full", "poisson"])
def test_the_last_iterate_is_what_the_training_alone_releases(training: Training) -> None:
    alone = training.publish(_data(), rng=np.random.default_rng(5))
    last = _published(training).weights()
    for name, array in alone.parameters.items():
        np.testing.assert_array_equal(last.parameters[name], array)


def test_what_is_left_without_the_noise_is_the_sum_of_clipped_gradients() -> None:
    training = replace(SAMPLED, clipping=DPClipping(0.7, 0.0))
    data, rng = _data(), np.random.default_rng(5)
    found = Recorded(training).publish(data, rng=rng)
    objective = training.objective()
    x, y = objective.tensor(data.x), objective.responses(training.responses(data.labels))
    assert found.members is not None
    told = []
    for number in range(len(found)):
        theta = objective.flat({n: a[number] for n, a in found.parameters.items()})
        sent = 6 * objective.flat({n: a[number] for n, a in found.gradients.items()})
        each = objective.gradients_each(theta, x, y)
        each = each * (0.7 / each.norm(dim=1)).clamp_max(1.0)[:, None]
        known = each[:-1][torch.tensor(found.members[number])].sum(0)
        rest = sent - known
        there = bool(rest.norm() > 1e-5)
        torch.testing.assert_close(rest, each[-1] * there, atol=1e-5, rtol=1e-5)
        told.append(there)
    # Of 12 steps the last record is in about 3.6: neither in all nor in none.
    assert 0 < sum(told) < len(told)


def test_a_full_batch_needs_no_members_and_every_third_step_can_be_kept() -> None:
    found = _published(PRIVATE, every=3)
    assert found.members is None
    assert found.steps.tolist() == [0, 3]
    whole = _published(PRIVATE)
    for name, array in found.gradients.items():
        np.testing.assert_array_equal(array, whole.gradients[name][::3])


def test_local_steps_are_recorded_too() -> None:
    client = GradientStep(MLP((4,), 3, (5,)), (0, 1, 2), Initialisation(seed=1))
    local = LocalSteps(DPSGD(client, 0.5, 2.0), SGD(0.1), epochs=4)
    found = _published(local)
    update = local.publish(_data(), rng=np.random.default_rng(5))
    assert len(found) == 4
    for name, change in update.changes.items():
        moved = found.final[name] - found.parameters[name][0]
        np.testing.assert_allclose(moved, change, atol=1e-7)
    assert Recorded(local).event(20) == local.event(20)


def test_the_event_is_the_trainings() -> None:
    assert Recorded(SAMPLED).event(20) == SAMPLED.event(20)


def test_a_known_order_of_poisson_sampling_is_refused() -> None:
    with pytest.raises(InputError, match="must be secret"):
        Recorded(replace(SAMPLED, batches=Batches(6, seed=1, poisson=True)))


def test_a_transcript_survives_its_file(tmp_path: Path) -> None:
    found = _published(SAMPLED)
    write_arrays(tmp_path / "t.safetensors", dict(found.arrays()))
    again = Transcript.of_arrays(read_arrays(tmp_path / "t.safetensors"))
    assert non_finite(again) is None
    arrays, others = dict(found.arrays()), dict(again.arrays())
    assert arrays.keys() == others.keys()
    for name, one in arrays.items():
        np.testing.assert_array_equal(one, others[name])


def test_changes_reach_parameters_and_gradients_alone() -> None:
    found = _published(SAMPLED)
    doubled = mapped(found, lambda array: 2.0 * array)
    assert isinstance(doubled, Transcript)
    np.testing.assert_array_equal(doubled.steps, found.steps)
    name = next(iter(found.final))
    np.testing.assert_array_equal(doubled.gradients[name], 2.0 * found.gradients[name])


def _arrays() -> dict[str, Array]:
    return dict(_published(SAMPLED).arrays())


def test_bad_files_are_refused_in_one_line() -> None:
    whole = _arrays()
    first = next(name for name in whole if name.startswith("gradients."))
    cases: list[tuple[dict[str, Array], str]] = [
        ({n: a for n, a in whole.items() if n != "steps"}, "needs the array 'steps'"),
        ({**whole, "weights": np.zeros(3)}, "no array 'weights'"),
        ({n: a for n, a in whole.items() if n != first}, "must have the same names"),
        ({**whole, first: whole[first][1:]}, "it must be"),
        ({**whole, "steps": whole["steps"][::-1].copy()}, "must rise"),
        ({**whole, "members": whole["members"][1:]}, "one row per step"),
    ]
    for arrays, message in cases:
        with pytest.raises(InputError, match=message):
            Transcript.of_arrays(arrays)
