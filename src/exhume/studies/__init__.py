"""The papers run again: their tables and figures as declared audits, published figures beside."""

from exhume.studies.base import Part, Picture, Scale, Size
from exhume.studies.catalogue import find, papers, parts
from exhume.studies.claims import Claim, Kind, Needs, Row, Verdict, judged, leaning
from exhume.studies.compete import compete
from exhume.studies.run import Reading, Run, read_record, write_record

__all__ = [
    "Claim",
    "Kind",
    "Needs",
    "Part",
    "Picture",
    "Reading",
    "Row",
    "Run",
    "Scale",
    "Size",
    "Verdict",
    "compete",
    "find",
    "judged",
    "leaning",
    "papers",
    "parts",
    "read_record",
    "write_record",
]
