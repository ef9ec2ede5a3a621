"""Schedules step for step beside ``torch.optim.lr_scheduler``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.optim import lr_scheduler

from exhume.protocol.errors import InputError
from exhume.training import SGD, Adam, CosineDecay, OneCycle, RateSchedule, StepDecay, WarmUp
from exhume.training.optimisers import Optimiser, RMSprop
from exhume.training.schedules import Moment

Make = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]
EPOCHS, PER_EPOCH = 10, 4


def theirs(make: Make, optimiser: torch.optim.Optimizer, per: str) -> list[tuple[float, float]]:
    """Return (rate, momentum) of every step of a plain torch loop."""
    schedule, found = make(optimiser), []
    for _ in range(EPOCHS):
        for _ in range(PER_EPOCH):
            group = optimiser.param_groups[0]
            found.append(
                (group["lr"], group["betas"][0] if "betas" in group else group["momentum"])
            )
            optimiser.step()
            if per == "step":
                schedule.step()
        if per == "epoch":
            schedule.step()
    return found


def ours(schedule: RateSchedule, optimiser: Optimiser) -> list[tuple[float, float]]:
    steps, found = EPOCHS * PER_EPOCH, []
    for step in range(steps):
        one = schedule.at(optimiser, Moment(step, steps, PER_EPOCH))
        found.append((one.learning_rate, one.beta1 if isinstance(one, Adam) else one.momentum))
    return found


@pytest.mark.parametrize(
    ("schedule", "make", "per"),
    [
        (StepDecay(every=3, factor=0.5), lambda o: lr_scheduler.StepLR(o, 3, 0.5), "epoch"),
        (
            StepDecay(after=(5, 11), factor=0.2, per="step"),
            lambda o: lr_scheduler.MultiStepLR(o, [5, 11], 0.2),
            "step",
        ),
        (CosineDecay(), lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS), "epoch"),
        (
            CosineDecay(over=25, lowest=1e-3, per="step"),
            lambda o: lr_scheduler.CosineAnnealingLR(o, 25, 1e-3),
            "step",
        ),
        (WarmUp(4), lambda o: lr_scheduler.LinearLR(o, total_iters=4), "epoch"),
        (
            WarmUp(5, 0.1, CosineDecay(per="step"), "step"),
            lambda o: lr_scheduler.SequentialLR(
                o,
                [lr_scheduler.LinearLR(o, 0.1, 1.0, 5), lr_scheduler.CosineAnnealingLR(o, 35)],
                [5],
            ),
            "step",
        ),
        (OneCycle(), lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=40), "step"),
        (
            OneCycle(0.45, 10.0, 100.0, None, linear=True),
            lambda o: lr_scheduler.OneCycleLR(
                o,
                0.2,
                total_steps=40,
                pct_start=0.45,
                div_factor=10.0,
                final_div_factor=100.0,
                cycle_momentum=False,
                anneal_strategy="linear",
            ),
            "step",
        ),
    ],
    ids=[
        "step",
        "milestones",
        "cosine",
        "cosine, long",
        "warm-up",
        "warm-up, cosine",
        "1",
        "1 lin",
    ],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
def test_schedules_are_torchs(schedule: RateSchedule, make: Make, per: str, name: str) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    own: Optimiser
    other: torch.optim.Optimizer
    if name == "sgd":
        own, other = SGD(0.2, 0.7), torch.optim.SGD([parameter], 0.2, 0.7)
    elif name == "adam":
        own, other = Adam(0.2, 0.7), torch.optim.Adam([parameter], 0.2, (0.7, 0.999))
    else:
        own, other = RMSprop(0.2, momentum=0.7), torch.optim.RMSprop([parameter], 0.2, momentum=0.7)
    found = ours(schedule, own)
    for mine, wanted in zip(found, theirs(make, other, per), strict=True):
        assert mine == pytest.approx(wanted, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: StepDecay(), "every or after"),
        (lambda: StepDecay(every=2, after=(3,)), "every or after"),
        (lambda: StepDecay(every=0), "at least 1"),
        (lambda: StepDecay(every=2, factor=0.0), "factor"),
        (lambda: CosineDecay(over=0), "over"),
        (lambda: CosineDecay(lowest=-1.0), "lowest"),
        (lambda: OneCycle(rising=1.2), "rising"),
        (lambda: OneCycle(momentum=(1.0, 0.8)), "momentum"),
        (lambda: WarmUp(0), "warm-up"),
        (lambda: WarmUp(3, start=-0.1), "share"),
    ],
)
def test_settings_out_of_range_are_named(make: Callable[[], RateSchedule], named: str) -> None:
    with pytest.raises(InputError, match=named):
        make()
