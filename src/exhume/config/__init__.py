"""An audit as a TOML file says it. Unknown keys are refused; names live here and nowhere else."""

from exhume.config.audit import (
    AuditTable,
    ClippingTable,
    Config,
    DataTable,
    KnowledgeTable,
    SettingTable,
    TrainingTable,
)
from exhume.config.defences import DefenceTable, OutputPerturbationTable
from exhume.config.options import OptionsTable
from exhume.config.reading import load, parse
from exhume.config.release import (
    NETWORKS,
    ImprintTable,
    LinearReleaseTable,
    NetworkReleaseTable,
    ReleaseTable,
    WarmUpTable,
)
from exhume.config.utility import UtilityTable

__all__ = [
    "NETWORKS",
    "AuditTable",
    "ClippingTable",
    "Config",
    "DataTable",
    "DefenceTable",
    "ImprintTable",
    "KnowledgeTable",
    "LinearReleaseTable",
    "NetworkReleaseTable",
    "OptionsTable",
    "OutputPerturbationTable",
    "ReleaseTable",
    "SettingTable",
    "TrainingTable",
    "UtilityTable",
    "WarmUpTable",
    "load",
    "parse",
]
