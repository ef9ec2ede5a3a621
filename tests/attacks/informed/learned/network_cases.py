"""Cases of a tiny network for the attack contract: with shadow targets, in many variations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.contract.cases import Case
from tests.shadows import small_network as small

from exhume.defences import Rounding
from exhume.models import Initialisation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer
from exhume.training import Answers

QUERIES = small.images().x[1000:1030]


@dataclass(frozen=True, eq=False)
class NetworkCase(Case):
    """A case whose adversary has shadow targets."""

    shadow_targets: Records | None = None

    def __str__(self) -> str:
        return self.name

    def _knowledge(self, i: int) -> Knowledge:
        return replace(super()._knowledge(i), shadow_targets=self.shadow_targets)


def case(name: str, mechanism: Mechanism, **changes: object) -> NetworkCase:
    """The small images' case."""
    plain = NetworkCase(
        name,
        mechanism,
        small.fixed_set(),
        small.targets(),
        value_range=(0.0, 1.0),
        shadow_targets=small.shadow_targets(60),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


WEIGHTS = case("weights", small.training())
ANSWERS = case("scores", Answers(small.training(), QUERIES))
CASES = (
    WEIGHTS,
    ANSWERS,
    case("probabilities", Answers(small.training(), QUERIES, Answer.PROBABILITIES)),
    case("rounded", Rounding(small.training(), 4)),
    case("label known", small.training(), labels_known=True),
    case("attributes known", small.training(), known_features=(0, 10, 24, 25, 26)),
    case("range unknown", small.training(), value_range=None),
    case("initialisation unknown", small.training(epochs=2, initial=Initialisation(seed=None))),
)
