"""Records out of fitted estimators: stored, pinned by trees, or found by fitting again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import BayesianRidge, ElasticNet, Lasso, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeRegressor
from tests.attacks.estimators.small import KNOWN, attacked, distance, table

from exhume.attacks import Refit, StoredRecords, TreeCells
from exhume.attacks.estimators.read_trees import paths, read_trees
from exhume.attacks.estimators.refit_search import SolvedRecord
from exhume.protocol.reconstruction import Status
from exhume.training.estimator import Estimator
from exhume.training.fitted_state import restore, state_of


class TestRefit:
    @pytest.mark.parametrize(
        ("template", "kind"),
        [
            (GaussianNB(), "classes"),
            (QuadraticDiscriminantAnalysis(), "classes"),
            (make_pipeline(StandardScaler(), BayesianRidge()), "numbers"),
            (make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()), "classes"),
        ],
        ids=[
            "naive Bayes",
            "quadratic discriminant",
            "scaled Bayesian ridge",
            "scaled discriminant",
        ],
    )
    def test_rebuilds_what_no_formula_was_written_for(self, template, kind):
        answers, truth, _ = attacked(Refit(), template, kind, 3)
        known, _ = table(kind)
        for answer, x, y in zip(answers, truth.x, truth.labels, strict=True):
            assert answer.status is Status.CONVERGED
            # A hundredth of a deviation; most are right to a millionth.
            assert distance(answer.samples[0], x, known) < 1e-2
            assert answer.labels[0] == pytest.approx(y, rel=1e-3)

    def test_says_which_columns_a_penalty_hides(self):
        # Of what is 0 in the optimum, and stays so, nothing shows: these columns are guesses.
        template = Lasso(alpha=10.0)
        (answer, *_), _, _ = attacked(Refit(), template, "numbers", 1)
        assert answer.status is Status.NO_INFORMATION or answer.stats["columns found"] < 10, answer
        assert answer.status is not Status.CONVERGED

    def test_a_guess_of_a_constant_holds_nothing_of_a_record(self):
        answers, _, _ = attacked(Refit(), DummyRegressor(), "numbers", 2)
        assert all(answer.status is not Status.CONVERGED for answer in answers)

    def test_its_own_estimate_is_not_too_small(self):
        answers, truth, _ = attacked(Refit(), BayesianRidge(), "numbers")
        known, _ = table("numbers")
        errors = [distance(a.samples[0], x, known) for a, x in zip(answers, truth.x, strict=True)]
        spread = known.x.std(axis=0).mean()
        for answer, error in zip(answers, errors, strict=True):
            assert error <= 10 * answer.error_estimate[0] / spread + 1e-6

    def test_what_draws_at_random_is_missing_information(self):
        template = SGDClassifier(random_state=None, max_iter=5, tol=None)
        (answer, *_), _, _ = attacked(Refit(), template, "classes", 1)
        assert answer.status is Status.UNINFORMED
        assert "random_state" in answer.message


class TestStepsBeforeTheModel:
    @pytest.mark.parametrize(
        "template",
        [
            make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)),
            make_pipeline(StandardScaler(), SGDClassifier(random_state=None, max_iter=5, tol=None)),
        ],
        ids=["before trees", "before random draws"],
    )
    def test_release_the_record_by_themselves(self, template):
        answers, truth, _ = attacked(Refit(), template, "classes", 3)
        for answer, x in zip(answers, truth.x, strict=True):
            assert answer.status is Status.CONVERGED
            assert answer.samples[0] == pytest.approx(x, rel=1e-5)
            assert answer.labels is None

    def test_extremes_say_little_of_the_others(self):
        template = make_pipeline(MinMaxScaler(), RandomForestClassifier(5, random_state=0))
        answers, _, _ = attacked(Refit(), template, "classes", 4)
        assert all(answer.status is not Status.CONVERGED for answer in answers)


def test_a_residual_of_zero_is_no_certainty_where_nothing_depends_on_the_record():
    # A perceptron that made no mistake on a record is the one without it, whatever the record is.
    slopes = np.array([[0.0, 0.0, 2.0]])
    found = SolvedRecord(np.zeros(3), 0.0, slopes, np.arange(3))
    assert found.errors() == pytest.approx([1.0, 1.0, 0.0], abs=1e-6)


class TestStoredRecords:
    @pytest.mark.parametrize(
        "template",
        [KNeighborsClassifier(), make_pipeline(StandardScaler(), KNeighborsRegressor())],
        ids=["as they are", "behind a scaler"],
    )
    def test_are_read(self, template):
        kind = "classes" if isinstance(template, KNeighborsClassifier) else "numbers"
        answers, truth, _ = attacked(StoredRecords(), template, kind, 3)
        for answer, x in zip(answers, truth.x, strict=True):
            assert answer.samples[0] == pytest.approx(x, rel=1e-9)
            assert f"_fit_X: {KNOWN + 1} records, {KNOWN} of them known" in answer.message

    def test_support_vectors_are_some_of_them(self):
        answers, truth, _ = attacked(StoredRecords(), SVC(), "classes", 8)
        found = [len(answer) for answer in answers]
        # A record that is no support vector is not there; the message says so.
        assert 0 < sum(found) < len(found)
        for answer, x in zip(answers, truth.x, strict=True):
            assert "support_vectors_" in answer.message
            if len(answer):
                assert answer.samples[0] == pytest.approx(x, rel=1e-6)

    def test_nothing_stored_nothing_said(self):
        (answer, *_), _, _ = attacked(StoredRecords(), BayesianRidge(), "numbers", 1)
        assert answer.status is Status.NO_INFORMATION
        assert len(answer) == 0


class TestTreeCells:
    def test_forests_pin_cells_exactly(self):
        template = RandomForestRegressor(20, random_state=0)
        answers, truth, nearest = attacked(TreeCells(), template, "numbers")
        known, _ = table("numbers")
        pinned = [answer.stats["columns found"] for answer in answers]
        assert np.median(pinned) >= 3
        errors = [distance(a.samples[0], x, known) for a, x in zip(answers, truth.x, strict=True)]
        assert np.mean(np.array(errors) < nearest) >= 0.8

    def test_behind_a_scaler_too(self):
        template = make_pipeline(StandardScaler(), RandomForestRegressor(10, random_state=0))
        answers, truth, _ = attacked(TreeCells(), template, "numbers", 3)
        for answer, x in zip(answers, truth.x, strict=True):
            exact = np.isclose(answer.samples[0], x, rtol=1e-5)
            assert exact.sum() >= answer.stats["columns found"] > 0

    @pytest.mark.parametrize(
        "template",
        [
            DecisionTreeRegressor(random_state=0),
            DecisionTreeClassifier(random_state=0),
            RandomForestRegressor(10, random_state=0),
            ExtraTreeRegressor(random_state=0),
        ],
        ids=lambda one: type(one).__name__,
    )
    def test_every_interval_holds_the_truth(self, template):
        kind = "classes" if "Classifier" in type(template).__name__ else "numbers"
        known, own = table(kind)
        estimator = Estimator(template)
        rows = known.x.astype(np.float32).astype(np.float64)
        for place in range(len(own)):
            target = own.take([place])
            fitted = estimator.fitted(known.with_record(target))
            trees = read_trees(state_of(fitted), estimator, known)
            assert trees
            for tree in trees:
                for (node, _), (after, _) in pairwise(paths(tree, rows)):
                    left = np.float32(target.x[0, tree.feature[node]]) <= tree.threshold[node]
                    assert after == (tree.left if left else tree.right)[node]

    def test_a_whole_tree_shows_the_label(self):
        for template, kind in (
            (DecisionTreeRegressor(random_state=0), "numbers"),
            (DecisionTreeClassifier(random_state=0), "classes"),
        ):
            answers, truth, _ = attacked(TreeCells(), template, kind, 3)
            found = [answer.labels[0] for answer in answers]
            assert found == pytest.approx(truth.labels, rel=1e-6)

    def test_bins_of_histograms_show_values_of_their_own(self):
        template = HistGradientBoostingRegressor(max_iter=5, random_state=0)
        answers, truth, _ = attacked(TreeCells(), template, "numbers", 3)
        for answer, x in zip(answers, truth.x, strict=True):
            exact = np.isclose(answer.samples[0], x, rtol=1e-6)
            assert exact.sum() >= answer.stats["columns found"] > 0


class TestState:
    def test_is_put_back(self):
        known, own = table("numbers", 1)
        pipeline = make_pipeline(StandardScaler(), BayesianRidge())
        with_target = Estimator(pipeline).fitted(known.with_record(own))
        without = Estimator(pipeline).fitted(known)
        restore(without, state_of(with_target))
        assert without.predict(own.x) == pytest.approx(with_target.predict(own.x), rel=1e-12)

    def test_settings_are_not_part_of_it(self):
        known, _ = table("numbers")
        names = state_of(Estimator(ElasticNet(alpha=0.3)).fitted(known))
        assert "coef_" in names
        assert "alpha" not in names
