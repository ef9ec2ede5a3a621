"""Attacks on a transcript of a private training's steps, with all other records known."""

from exhume.attacks.informed.transcript.last_iterate import LastIterate
from exhume.attacks.informed.transcript.prior_aware import PriorAware

__all__ = ["LastIterate", "PriorAware"]
