"""The stages of an audit, in their order; each does what the run folder does not hold yet."""

from exhume.audit.stages.attack import AttackFirst, RunAttacks
from exhume.audit.stages.base import Stage
from exhume.audit.stages.judge import JudgeCandidates
from exhume.audit.stages.measure import MeasureSettings
from exhume.audit.stages.shadows import TrainShadows
from exhume.audit.stages.train import TrainWithDefences
from exhume.audit.stages.victims import TrainOwnLoops

STAGES: tuple[Stage, ...] = (
    TrainOwnLoops(),
    MeasureSettings(),
    TrainWithDefences(),
    AttackFirst(),
    TrainShadows(),
    RunAttacks(),
    JudgeCandidates(),
)

__all__ = ["STAGES"]
