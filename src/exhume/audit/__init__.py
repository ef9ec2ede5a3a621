"""Audits: a plan becomes trials, trials become records, records a summary."""

from exhume.audit.executors import Executor, Processes, Ray, Serial
from exhume.audit.gate import Verdict, judge
from exhume.audit.plan import Plan, make_plan
from exhume.audit.record import Record, Trial
from exhume.audit.runner import run
from exhume.audit.setting import Setting
from exhume.audit.store import Store
from exhume.audit.summary import Bracket, Rate, Row, Summary, summarise

__all__ = [
    "Bracket",
    "Executor",
    "Plan",
    "Processes",
    "Rate",
    "Ray",
    "Record",
    "Row",
    "Serial",
    "Setting",
    "Store",
    "Summary",
    "Trial",
    "Verdict",
    "judge",
    "make_plan",
    "run",
    "summarise",
]
