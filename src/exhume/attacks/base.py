"""The attack protocol. An attack gets a release and knowledge; it never sees the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, final

import numpy as np

from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release, non_finite
from exhume.seeds import Seed, generator


class Attack(ABC):
    """A way to rebuild records from a release.

    Subclasses are frozen dataclasses whose fields are the settings, with a ``name`` for the command
    line. They write ``accepts`` and ``_reconstruct``; checking, refusing and clipping to the known
    value range happen here, once. ``_reconstruct_each`` may be overridden to share work.
    """

    name: ClassVar[str]
    baseline: ClassVar[bool] = False
    """True for guesses that ignore the release: they are what an attack must beat."""

    @abstractmethod
    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Return None if the attack applies, otherwise the reason why it doesn't."""

    @abstractmethod
    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        """Rebuild records from a finite release that ``accepts`` has admitted."""

    def _reconstruct_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        return [
            self._reconstruct(*arguments)
            for arguments in zip(releases, knowledge, rngs, strict=True)
        ]

    @final
    def reconstruct(self, release: Release, knowledge: Knowledge, *, rng: Seed) -> Reconstruction:
        """Rebuild what this release gives away. The same seed gives the same answer."""
        return self.reconstruct_each([release], [knowledge], rngs=[generator(rng)])[0]

    @final
    def reconstruct_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        *,
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        """Attack independent releases, each with its own knowledge and random stream."""
        if not len(releases) == len(knowledge) == len(rngs):
            raise InputError(
                f"one knowledge and one stream a release: got {len(releases)} releases, "
                f"{len(knowledge)} knowledge, {len(rngs)} streams"
            )
        results: list[Reconstruction | None] = [
            self._refusal(*pair) for pair in zip(releases, knowledge, strict=True)
        ]
        todo = [i for i, refusal in enumerate(results) if refusal is None]
        found = self._reconstruct_each(
            [releases[i] for i in todo], [knowledge[i] for i in todo], [rngs[i] for i in todo]
        )
        for i, reconstruction in zip(todo, found, strict=True):
            results[i] = _checked(reconstruction, knowledge[i])
        return [result for result in results if result is not None]

    def _refusal(self, release: Release, knowledge: Knowledge) -> Reconstruction | None:
        bad = non_finite(release)
        if bad is not None:
            return nothing(knowledge, Status.INVALID_RELEASE, f"'{bad}' is not finite")
        reason = self.accepts(release, knowledge)
        return None if reason is None else nothing(knowledge, Status.REFUSED, reason)


def nothing(knowledge: Knowledge, status: Status, message: str) -> Reconstruction:
    """Return a reconstruction without candidates, and why."""
    return Reconstruction(np.empty((0, *knowledge.record_shape)), status, message=message)


def _checked(reconstruction: Reconstruction, knowledge: Knowledge) -> Reconstruction:
    samples = reconstruction.samples
    if not np.isfinite(samples).all():
        return nothing(knowledge, Status.NOT_CONVERGED, "the candidates are not finite numbers")
    if knowledge.value_range is None or not len(samples):
        return reconstruction
    clipped = np.clip(samples, *knowledge.value_range)
    return replace(reconstruction, samples=clipped)
