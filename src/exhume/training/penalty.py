"""Penalties and the common conventions for writing them."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.protocol.errors import InputError


@dataclass(frozen=True)
class Penalty:
    """A squared-norm penalty, with its convention stated.

    The objective is Σ loss + ``strength``·½‖θ‖². ``halved=False``: ``strength``·‖θ‖² (no ½).
    ``averaged=True``: the loss is the mean over records, not the sum. ``intercept=True``: the
    intercept is penalised like any coefficient.

    >>> Penalty(2.0, halved=False).summed(records=100)
    4.0
    >>> Penalty(0.5, averaged=True).summed(records=100)
    50.0
    """

    strength: float = 0.0
    halved: bool = True
    averaged: bool = False
    intercept: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.strength < float("inf"):
            raise InputError(f"a penalty's strength must be at least 0, got {self.strength}")

    def summed(self, records: int) -> float:
        """Return λ of the convention Σ loss + (λ/2)‖θ‖²; with weights, ``records`` is their sum."""
        return self.strength * (1.0 if self.halved else 2.0) * (records if self.averaged else 1.0)
