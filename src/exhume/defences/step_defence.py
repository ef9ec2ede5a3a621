"""Defences inside a gradient step: they change the function that is differentiated."""

from __future__ import annotations

from typing import ClassVar

from exhume.protocol.defence import Defence, Place
from exhume.training.gradient import Step


class StepDefence(Defence, Step):
    """A defence around a step that is itself a step, so local steps can use it."""

    inner: Step
    place: ClassVar[Place] = Place.STEP
