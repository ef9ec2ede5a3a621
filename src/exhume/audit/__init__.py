"""Audits: a plan becomes trials, trials become records, records a summary."""

from exhume.audit.plan import Plan, make_plan
from exhume.audit.runner import run
from exhume.audit.setting import ThreatSetting
from exhume.runlog.gate import Verdict, judge
from exhume.runlog.outcome import Outcome, Trial
from exhume.runlog.store import Store
from exhume.runlog.summary import Bracket, Rate, Row, Summary, summarise
from exhume.runtime import Executor, Processes, Ray, Serial

__all__ = [
    "Bracket",
    "Executor",
    "Outcome",
    "Plan",
    "Processes",
    "Rate",
    "Ray",
    "Row",
    "Serial",
    "Store",
    "Summary",
    "ThreatSetting",
    "Trial",
    "Verdict",
    "judge",
    "make_plan",
    "run",
    "summarise",
]
