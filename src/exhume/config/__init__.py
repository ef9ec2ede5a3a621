"""The TOML form of an audit. Unknown keys are refused; names as strings exist only here."""

from exhume.config.audit import AuditTable, Config, SettingTable
from exhume.config.data_and_knowledge import DataTable, KnowledgeTable
from exhume.config.defences import DefenceTable, listed_defences
from exhume.config.reading import load, parse
from exhume.config.release import (
    NETWORKS,
    EstimatorReleaseTable,
    ImprintTable,
    LinearReleaseTable,
    NetworkReleaseTable,
    ReleaseTable,
    WarmUpTable,
)
from exhume.config.setting_tables import OptionsTable, UtilityTable
from exhume.config.training import (
    OPTIMISERS,
    SCHEDULES,
    ClippingTable,
    ScheduleTable,
    TrainingTable,
)

__all__ = [
    "NETWORKS",
    "OPTIMISERS",
    "SCHEDULES",
    "AuditTable",
    "ClippingTable",
    "Config",
    "DataTable",
    "DefenceTable",
    "EstimatorReleaseTable",
    "ImprintTable",
    "KnowledgeTable",
    "LinearReleaseTable",
    "NetworkReleaseTable",
    "OptionsTable",
    "ReleaseTable",
    "ScheduleTable",
    "SettingTable",
    "TrainingTable",
    "UtilityTable",
    "WarmUpTable",
    "listed_defences",
    "load",
    "parse",
]
