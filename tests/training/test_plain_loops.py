"""Trainings beside plain torch loops, which share nothing with them but the description."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tests.contract import own_networks
from tests.contract.own_networks import OWN
from torch import nn
from torch.optim import lr_scheduler

from exhume.models import Imported
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import (
    SGD,
    Adam,
    Augmentation,
    Batches,
    CosineDecay,
    DPClipping,
    OneCycle,
    RMSprop,
    Training,
    WarmUp,
)

CLASSES = (0, 1, 2)
RECORDS = Records(
    np.random.default_rng(1).uniform(size=(20, 1, 6, 6)),
    np.random.default_rng(2).integers(0, 3, 20),
)
WEIGHTS = (0.5, 1.0, 2.0)


def described(name: str, **settings: object) -> Training:
    network = Imported((1, 6, 6), 3, f"{OWN}:{name}")
    usual = {"optimiser": SGD(0.1), "epochs": 4, "precision": "float64"}
    return Training(network, CLASSES, **{**usual, **settings})


@dataclass(frozen=True)
class Plain:
    """A user's loop: float64, cross-entropy, batches as the description orders them."""

    optimiser: object
    schedule: object = None
    per_step: bool = False
    loss: object = None
    limit: float | None = None
    augment: object = None
    seed: int | None = None
    stop: int | None = None

    def train(self, training: Training) -> nn.Module:
        module = getattr(own_networks, training.network.source.partition(":")[2])().double().train()
        start = training.initial.draw(training.network, np.random.default_rng(0))
        with torch.no_grad():
            for key, values in module.named_parameters():
                values.copy_(torch.tensor(start[key]))
        optimiser = self.optimiser(module.parameters())
        schedule = self.schedule(optimiser) if self.schedule else None
        loss = self.loss or nn.CrossEntropyLoss()
        x, y = torch.tensor(RECORDS.x), torch.tensor(RECORDS.labels)
        orders = [
            np.arange(len(x)) if chosen is None else chosen
            for chosen in replace(training, stop_after=None).steps(len(x), np.random.default_rng(0))
        ]
        per_epoch = len(orders) // training.epochs
        with torch.random.fork_rng():
            if self.seed is not None:
                torch.manual_seed(self.seed)
            for step, chosen in enumerate(orders[: self.stop]):
                batch = x[chosen] if self.augment is None else self.augment(x[chosen])
                optimiser.zero_grad()
                loss(module(batch), y[chosen]).backward()
                if self.limit is not None:
                    nn.utils.clip_grad_norm_(module.parameters(), self.limit)
                optimiser.step()
                if schedule is not None and (self.per_step or (step + 1) % per_epoch == 0):
                    schedule.step()
        return module


def flipped_and_cropped(x: torch.Tensor) -> torch.Tensor:
    """Write the usual augmentation out, image by image."""
    mirrored = torch.rand(len(x)) < 0.5
    places = torch.randint(3, (len(x), 2))
    found = []
    for image, mirror, (row, column) in zip(x, mirrored, places, strict=True):
        turned = image.flip(-1) if mirror else image
        padded = nn.functional.pad(turned, (1, 1, 1, 1))
        found.append(padded[:, row : row + 6, column : column + 6])
    return torch.stack(found)


CASES = {
    "nesterov": (
        described("channels_first", optimiser=SGD(0.1, 0.9, 1e-3, nesterov=True)),
        Plain(lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=1e-3, nesterov=True)),
    ),
    "adamw, cosine, batches, batch norm": (
        described(
            "batch_norm",
            optimiser=Adam(0.01, weight_decay=0.1, decoupled=True),
            schedule=CosineDecay(),
            batches=Batches(8, seed=4),
        ),
        Plain(
            lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
            lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
        ),
    ),
    "rmsprop, norm limited": (
        described("batch_norm", optimiser=RMSprop(0.01), gradient_norm=0.05),
        Plain(lambda p: torch.optim.RMSprop(p, 0.01), limit=0.05),
    ),
    "warm-up, smoothing, class weights": (
        described(
            "channels_first",
            schedule=WarmUp(2, 0.1, CosineDecay()),
            label_smoothing=0.1,
            class_weights=WEIGHTS,
            batches=Batches(6),
        ),
        Plain(
            lambda p: torch.optim.SGD(p, 0.1),
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o, 0.1, 1, 2), lr_scheduler.CosineAnnealingLR(o, 2)], [2]
            ),
            loss=nn.CrossEntropyLoss(
                torch.tensor(WEIGHTS, dtype=torch.float64), label_smoothing=0.1
            ),
        ),
    ),
    "one cycle, stopped early": (
        described("channels_first", schedule=OneCycle(), batches=Batches(6), stop_after=9),
        Plain(
            lambda p: torch.optim.SGD(p, 0.1),
            lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=16),
            per_step=True,
            stop=9,
        ),
    ),
    "dropout": (
        described("dropout", draw_seed=5, batches=Batches(8, seed=1)),
        Plain(lambda p: torch.optim.SGD(p, 0.1), seed=5),
    ),
    "dropout in a function": (
        described("dropout_in_a_function", draw_seed=6),
        Plain(lambda p: torch.optim.SGD(p, 0.1), seed=6),
    ),
    "dropout, batch norm, augmentation": (
        described("both", draw_seed=7, augmentation=Augmentation(0.5, 1, channels_first=True)),
        Plain(lambda p: torch.optim.SGD(p, 0.1), seed=7, augment=flipped_and_cropped),
    ),
    "attention": (
        described("transformer", optimiser=Adam(0.01), schedule=CosineDecay(per="step")),
        Plain(
            lambda p: torch.optim.Adam(p, 0.01),
            lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
            per_step=True,
        ),
    ),
}


def published(training: Training, seed: int = 0) -> Weights:
    found = training.publish(RECORDS, rng=np.random.default_rng(seed))
    assert isinstance(found, Weights)
    return found


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", CASES)
def test_every_step_is_the_plain_loops(name: str) -> None:
    training, plain = CASES[name]
    release, module = published(training), plain.train(training)
    for key, values in module.named_parameters():
        np.testing.assert_allclose(
            release.parameters[key], values.detach().numpy(), rtol=1e-9, atol=1e-11
        )
    statistics = {k: b for k, b in module.named_buffers() if not k.endswith("batches_tracked")}
    assert release.buffers.keys() == statistics.keys()
    for key, values in statistics.items():
        np.testing.assert_allclose(release.buffers[key], values.numpy(), rtol=1e-9, atol=1e-12)
    scores = training.scores(release, RECORDS.x)
    with torch.no_grad():
        expected = module.eval()(torch.tensor(RECORDS.x)).numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["dropout", "dropout_in_a_function", "both"])
def test_secret_draws_are_not_called_deterministic(name: str) -> None:
    secret = described(name)
    assert not secret.deterministic
    assert described(name, draw_seed=1).deterministic
    first, again, other = published(secret), published(secret), published(secret, seed=1)
    for key, values in first.parameters.items():
        assert np.array_equal(values, again.parameters[key]), "one stream, one release"
    assert any(not np.array_equal(v, other.parameters[k]) for k, v in first.parameters.items())


def test_known_draws_do_not_depend_on_anybody_elses_stream() -> None:
    training = described("dropout", draw_seed=3)
    torch.manual_seed(1)
    first, before = published(training), torch.get_rng_state()
    torch.manual_seed(2)
    again = published(training, seed=9)
    torch.manual_seed(1)
    assert torch.equal(before, torch.get_rng_state()), "the caller's stream is left alone"
    assert all(np.array_equal(v, again.parameters[k]) for k, v in first.parameters.items())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"gradient_norm": 0.0}, "gradient_norm must be a positive number, got 0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be in"),
        ({"class_weights": (1.0, 2.0)}, "class_weights has 2 numbers for 3 classes"),
        ({"class_weights": (1.0, 2.0, -1.0)}, "class_weights must be positive"),
        ({"stop_after": 0}, "stop_after must be at least 1 step"),
        ({"clipping": DPClipping(1.0, 1.0), "label_smoothing": 0.1}, "goes without clipping"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        described("channels_first", **settings)


def test_private_gradients_need_records_that_do_not_meet() -> None:
    training = described("batch_norm", clipping=DPClipping(1.0, 0.0))
    with pytest.raises(InputError, match="no batch normalisation"):
        published(training)


def test_a_single_record_has_no_statistics() -> None:
    with pytest.raises(InputError, match="more than 1 record per batch"):
        published(described("batch_norm", batches=Batches(19)))


def test_augmentation_moves_channels_last_alike() -> None:
    """(n, 6, 6), (n, 6, 6, 1) and (n, 1, 6, 6) with the same numbers give the same images."""
    x, found = torch.rand(5, 6, 6), []
    for shaped, first in ((x, False), (x[..., None], False), (x[:, None], True)):
        torch.manual_seed(0)
        found.append(Augmentation(0.5, 2, channels_first=first)(shaped).reshape(5, 6, 6))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
