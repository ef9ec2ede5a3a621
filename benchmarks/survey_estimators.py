"""Default-constructible scikit-learn classifiers and regressors, and twelve pipelines, attacked.

    python benchmarks/survey_estimators.py                    # all: docs/results/estimators.md
    python benchmarks/survey_estimators.py Ridge SVC --print  # some, without writing

Each estimator is fitted on 150 records and one of 20 targets at a time, with random_state = 0 where
it takes one. The error is that of the attack whose own estimate of it is smallest, divided by the
distance from the target to the nearest known record. Rows are kept in a file of JSON lines: the
same command resumes, and ``--again`` attacks the named ones once more.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from survey_cases import SurveyCase, estimator_cases, pipeline_cases
from survey_page import SurveyRow, page

from exhume.attacks.estimators import Refit, StoredRecords, TreeCells
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import Attack
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status

TARGETS = 20
SECONDS, LEAST_FITS, MOST_FITS = 0.3, 60, 600
"""About how long one target may take; slow estimators are fitted less often."""
RESULTS = Path(__file__).parents[1] / "docs" / "results"
ROWS, PAGE = RESULTS / "estimators.jsonl", RESULTS / "estimators.md"


@dataclass(frozen=True)
class Answers:
    """What every attack answered for every target, by the attack's name."""

    found: dict[str, list[Reconstruction]]

    def best(self, target: int) -> tuple[str, Reconstruction]:
        """Return the answer whose own estimate of its error is the smallest."""
        own = {name: answers[target] for name, answers in self.found.items()}
        with_any = {name: one for name, one in own.items() if len(one)}
        if not with_any:
            return "", next(iter(own.values()))
        return min(with_any.items(), key=lambda pair: _estimate(pair[1]))


def _estimate(answer: Reconstruction) -> float:
    return 0.0 if answer.error_estimate is None else float(answer.error_estimate[0])


def judge(case: SurveyCase, targets: int = TARGETS) -> SurveyRow:
    """Attack one estimator."""
    started = time.process_time()
    try:
        answers = attacked(case, targets)
    except InputError as error:
        return SurveyRow(case.name, case.kind, "refused", note=str(error))
    except Exception as error:  # a crash is a finding, too
        return SurveyRow(case.name, case.kind, "crashed", note=f"{type(error).__name__}: {error}")
    return _row(case, answers, targets, time.process_time() - started)


def attacked(case: SurveyCase, targets: int) -> Answers:
    """Return the answers of all attacks; InputError if the estimator is refused."""
    estimator, known, own = case.dealt(targets)
    rngs = [np.random.default_rng(i) for i in range(targets)]
    started = time.process_time()
    releases = estimator.publish_each(known, own, rngs=rngs)
    fit = (time.process_time() - started) / targets
    told = Knowledge(
        record_shape=known.record_shape,
        training=estimator,
        fixed_set=known,
        schema=estimator.schema,
    )
    fits = int(np.clip(SECONDS / fit, LEAST_FITS, MOST_FITS))
    attacks: Sequence[Attack] = (StoredRecords(), TreeCells(), Refit(fits=fits))
    found: dict[str, list[Reconstruction]] = {}
    for attack in attacks:
        # Where every record is read as it is, no search is needed.
        if found and all(len(one) for one in found["stored-records"]):
            break
        found[attack.name] = attack.reconstruct_each(releases, [told] * targets, rngs=rngs)
    return Answers(found)


def _row(case: SurveyCase, answers: Answers, targets: int, seconds: float) -> SurveyRow:
    _, known, own = case.dealt(targets)
    unit = case.unit(known)
    chosen = [answers.best(target) for target in range(targets)]
    nearest = np.array([_distances(known.x, x, unit).min() for x in own.x])
    errors = np.array(
        [
            _distances(one.samples[:1], x, unit)[0] if len(one) else np.inf
            for (_, one), x in zip(chosen, own.x, strict=True)
        ]
    )
    ratio = float(np.median(errors / nearest))
    carried = next((m for m in _messages(answers, "stored-records") if "carries" in m), "")
    trees = [a for a in answers.found.get("tree-cells", []) if len(a)]
    names = [name for name, _ in chosen]
    answer = "rebuilt" if ratio < 1.0 else "not rebuilt"
    if carried:
        answer = "carries records"
    elif trees:
        answer = "rebuilt" if ratio < 1.0 else "cells"
    return SurveyRow(
        case.name,
        case.kind,
        answer,
        attack=max(set(names), key=names.count),
        ratio=ratio if np.isfinite(ratio) else None,
        closer=float(np.mean(errors < nearest)),
        pinned=float(np.median([a.stats["columns found"] for a in trees])) if trees else None,
        width=float(np.median([a.stats["interval, in deviations"] for a in trees]))
        if trees
        else None,
        note=carried or _reason(answers),
        seconds=seconds / targets,
    )


def _distances(rows: FloatArray, x: FloatArray, unit: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.mean(((rows - x) / unit) ** 2, axis=1)))


def _messages(answers: Answers, attack: str) -> list[str]:
    return [one.message for one in answers.found.get(attack, [])]


def _reason(answers: Answers) -> str:
    """Return what the attack by fits says most often where it is not certain."""
    found = answers.found.get("refit", [])
    unsure = [one for one in found if one.status is not Status.CONVERGED] or found
    told = [one.message or one.status.value for one in unsure]
    return max(set(told), key=told.count) if told else ""


def _kept() -> dict[str, SurveyRow]:
    if not ROWS.is_file():
        return {}
    rows = [SurveyRow(**json.loads(line)) for line in ROWS.read_text("utf-8").splitlines()]
    return {row.name: row for row in rows}


def with_the_rest(rows: dict[str, SurveyRow], cases: Sequence[SurveyCase]) -> list[SurveyRow]:
    """Return a row for every case; what was not attacked yet says so, and counts as no answer."""
    return [rows.get(case.name, SurveyRow(case.name, case.kind, "not run")) for case in cases]


def _keep(rows: dict[str, SurveyRow], cases: Sequence[SurveyCase]) -> None:
    there = [rows[case.name] for case in cases if case.name in rows]
    lines = [json.dumps(asdict(row), ensure_ascii=False) for row in there]
    ROWS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    PAGE.write_text(page(with_the_rest(rows, cases)), encoding="utf-8")


def main() -> None:
    """Attack what is not kept yet, print a line for each, and write the page at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--print", action="store_true", dest="only_print")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [*estimator_cases(), *pipeline_cases()]
    rows = _kept()
    fresh = options.again or options.only_print
    wanted = [case for case in cases if not options.names or case.name in options.names]
    for case in wanted:
        if case.name in rows and not fresh:
            continue
        row = judge(case)
        print(row.line(), flush=True)
        # Others may have kept rows in the meantime.
        rows = {**_kept(), case.name: row}
        if not options.only_print:
            _keep(rows, cases)
    if not options.only_print:
        _keep(_kept(), cases)


if __name__ == "__main__":
    main()
