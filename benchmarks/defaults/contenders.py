"""Who takes part: other classifiers, and our estimators as they come or with a part removed."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller

from scipy.sparse import issparse
from scipy.stats import loguniform
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, ShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.metrics import top_k_scorer

OURS = ("top_k", "average_k")


@dataclass(frozen=True)
class Contender:
    """How a classifier is built, where it takes part, and which columns it is judged in.

    Parameters
    ----------
    build : callable
        ``build(task, X, seed)`` returns a classifier, not fitted.
    kinds : tuple of str
        Kinds of tasks.
    columns : {"both", "top_k", "average_k"}
        An estimator of ours is judged by its own sets only.
    most_classes : int
        Tasks with more are left out: boosting fits a tree per class and round.
    package : str, optional
        What it needs beside the dependencies of the benchmarks; left out where it is not there.
    """

    build: Callable
    kinds: tuple = ("text", "table", "image")
    columns: str = "both"
    most_classes: int = 1000
    package: str | None = None

    @property
    def is_installed(self):
        return self.package is None or importlib.util.find_spec(self.package) is not None


def _scaled(model, X):
    """Put a StandardScaler before a model that needs one; ours do without."""
    return model if issparse(X) else make_pipeline(StandardScaler(), model)


def logistic(task, X, seed):
    model = GridSearchCV(
        _scaled(LogisticRegression(max_iter=300), X),
        {("C" if issparse(X) else "logisticregression__C"): LOGISTIC_C[task.kind]},
        cv=KFold(3, shuffle=True, random_state=seed),
    )
    return model


def one_logistic(task, X, seed):
    """One fit of the middle C, to compare the time of one fit with."""
    return _scaled(LogisticRegression(C=LOGISTIC_C[task.kind][1], max_iter=300), X)


#: Ten times smaller for tables, whose columns have variance one.
LOGISTIC_C = {"text": (1, 10, 100), "table": (0.1, 1, 10), "image": (0.01, 0.1, 1)}


def perceptron(task, X, seed):
    return _scaled(MLPClassifier((256,), random_state=seed), X)


def _densified(model, X):
    """Put a step before a model that takes no sparse rows."""
    dense = FunctionTransformer(methodcaller("toarray"), accept_sparse=True)
    return make_pipeline(dense, model) if issparse(X) else model


def boosting(task, X, seed):
    return _densified(HistGradientBoostingClassifier(random_state=seed), X)


def forest(task, X, seed):
    return RandomForestClassifier(random_state=seed)


def realmlp(task, X, seed):
    """Tuned defaults of a perceptron for tables, with its own preparation of the columns."""
    from pytabkit import RealMLP_TD_Classifier

    return _densified(RealMLP_TD_Classifier(device="cpu", n_threads=1, random_state=seed), X)


def _ours(cls, **params):
    def build(task, X, seed):
        k = task.k if cls is TopKClassifier else task.average_k
        return cls(k, random_state=seed, **params)

    return build


#: What the random search draws from.
SEARCHED = {
    "loss": ["noised_mixture", "noised_hinge", "cross_entropy"],
    "epsilon": loguniform(0.1, 3),
    "lr": loguniform(3e-4, 1e-2),
    "weight_decay": loguniform(1e-4, 1),
    "backbone_params": [
        {"hidden": hidden, "dropout": dropout}
        for hidden in ((128,), (256,), (512,), (256, 256))
        for dropout in (0.0, 0.2, 0.5)
    ],
}


def searched(task, X, seed):
    return RandomizedSearchCV(
        TopKClassifier(task.k, random_state=seed),
        SEARCHED,
        n_iter=30,
        scoring=top_k_scorer(k=task.k),
        cv=ShuffleSplit(1, test_size=0.2, random_state=seed),
        random_state=seed,
    )


CONTENDERS = {
    "logistic": Contender(logistic, ("text", "table")),
    "perceptron": Contender(perceptron, ("text", "table")),
    "boosting": Contender(boosting, ("table",), most_classes=12),
    "forest": Contender(forest, ("table",)),
    "realmlp": Contender(realmlp, ("table",), package="pytabkit"),
    "top_k": Contender(_ours(TopKClassifier), columns="top_k"),
    "average_k": Contender(_ours(AverageKClassifier), columns="average_k"),
    "top_k: best of 30 drawn": Contender(searched, ("text", "table"), columns="top_k"),
    **{
        name: Contender(_ours(cls, **params), columns=column)
        for column, cls, parts in (
            (
                "top_k",
                TopKClassifier,
                {
                    "top_k: cross-entropy alone": {"loss": "cross_entropy"},
                    "top_k: hinges alone": {"cross_entropy": 0.0},
                },
            ),
            (
                "average_k",
                AverageKClassifier,
                {
                    "average_k: cross-entropy alone": {"loss": "cross_entropy"},
                    "average_k: with hinges": {"loss": "two_head_mixture"},
                    "average_k: without candidates": {"alpha": 0.0},
                },
            ),
        )
        for name, params in parts.items()
    },
}

#: Whose times are taken alone, on tables and texts.
TIMED = {
    "top_k": _ours(TopKClassifier),
    "average_k": _ours(AverageKClassifier),
    "one logistic": one_logistic,
    "perceptron": perceptron,
}
