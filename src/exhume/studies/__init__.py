"""The papers reproduced: their tables and figures as declared audits."""

from exhume.studies.catalogue import find, papers, parts
from exhume.studies.claims import Claim, ClaimRow, ClaimVerdict, Kind, Needs
from exhume.studies.part import Part, Picture, Scale, Size
from exhume.studies.publish import compete
from exhume.studies.reading import StudyReading, StudyRun, read_record, write_record

__all__ = [
    "Claim",
    "ClaimRow",
    "ClaimVerdict",
    "Kind",
    "Needs",
    "Part",
    "Picture",
    "Scale",
    "Size",
    "StudyReading",
    "StudyRun",
    "compete",
    "find",
    "papers",
    "parts",
    "read_record",
    "write_record",
]
