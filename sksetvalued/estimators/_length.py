"""How long the deep classifiers train."""

import math

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .. import training
from .._warnings import warn_caller
from ..training import folds_per_class, split_per_class
from ._deep import is_named

#: A likelihood at or below this multiple of chance (both negative) is no better than chance.
NO_BETTER = 0.99

#: Training samples that are looked at, at most, to see whether anything was learnt.
MOST_CHECKED = 500
#: ... or, with many classes, those that give so many scores.
MOST_SCORES_CHECKED = 1 << 25
#: Those that are looked at first, and are enough so many standard errors above chance.
FEW_CHECKED, SURELY = 64, 5

#: Held-out samples that the monitor looks at: those that give so many scores, but not fewer than
#: that many samples.
MOST_SCORES, FEWEST_MONITORED = 1 << 27, 256


def _surely_positive(values):
    """Return whether the mean of what some values were drawn from is positive beyond doubt."""
    if not np.isfinite(values).all():
        return False
    return values.mean() > SURELY * values.std() / math.sqrt(len(values))


class SearchedLength:
    """Find the number of epochs by samples that are held out for it."""

    #: What a search found, for a fit that goes on.
    _found_epochs = None

    #: Value of the metric of a search up to which nothing was learnt, where it is known.
    _chance = None

    #: Share of the epochs that the best took after which a search without improvement ends.
    _search_patience = 1 / 2
    #: Epochs whose mean value a search goes by.
    _search_n_last = 1

    def _forget_network(self):
        vars(self).pop("_found_epochs", None)
        super()._forget_network()

    def _searches_epochs(self, resume):
        """Return whether the number of epochs is found by samples that are held out for it.

        That takes weights that are as good after any epoch as those of a training that ends there.
        """
        schedule = self._schedule()
        open_ended = schedule is None or is_named(schedule, "averaged")
        open_ended &= training.scheduler_of(self.callbacks) is None
        auto = self.max_epochs == "auto" and self._recipe.searched
        return auto and open_ended and resume is None

    def _epochs_asked_for(self, resume):
        """Return the epochs asked for, or found by the fit that this one goes on with, or None."""
        if self.max_epochs != "auto":
            return self.max_epochs
        return None if resume is None else self._found_epochs

    def _search(self, train, valid):
        """Train on a part of the data; return the callback that knows the epoch that was best.

        None where the training was interrupted.
        """
        # With such parameters, callbacks are known when they are made only.
        if not any(key.startswith("callbacks__") for key in self.net_params or ()):
            training.check_no_validation(self.callbacks)
        self._train(train, valid, None, "search")
        return None if self.net_.interrupted_ else dict(self.net_.callbacks_)["best_epoch"]

    def _say_that_nothing_was_learnt(self, measured):
        warn_caller(
            f"The network learnt next to nothing: {measured}. Check that the rows of X and y "
            "belong together, the features (codes of categories are no quantities: "
            "OneHotEncoder; stored values of many orders: np.log1p), lr, max_epochs, and the "
            "parameters of the loss.",
            ConvergenceWarning,
        )

    def _few_enough(self, rows):
        """Return held-out rows, of many classes some only, whose scores fit into memory."""
        most = max(MOST_SCORES // len(self.classes_), FEWEST_MONITORED)
        return rows[:: -(-len(rows) // most)]


def _in_words(which, likelihood, chance):
    return (
        f"on {which} samples, the log-likelihood of the labels is {likelihood:.3g}, and "
        f"{chance:.3g} by the shares of the classes"
    )


class LabelLength(SearchedLength):
    """Train on single labels for the epochs that were asked for, or that a search advises."""

    # Likelihoods rise and fall more evenly than the scores of predicted sets.
    _search_patience = 1 / 3
    # A single good epoch may come long before the scores are sharp enough for a threshold.
    _search_n_last = 2

    def _search_metric(self):
        return "valid_calibrated_likelihood", self._likelihood

    @property
    def _chance(self):
        return NO_BETTER * float(self._prior @ np.log(self._prior))

    def _fit_searched(
        self, inputs, target, weight, train, random_state, checkpoint, resume, n_folds
    ):
        """Find the number of epochs on a part of the data, then train anew on all of it.

        Return whether the rule was calibrated on samples that were held out.
        """
        if n_folds is None:
            fraction = self.validation_fraction or training.HELD_OUT
            splits = [split_per_class(target[train], fraction, random_state)]
        else:
            if self.validation_fraction is not None:
                warn_caller(
                    f"validation_fraction={self.validation_fraction} has no effect where "
                    "max_epochs='auto' is found on the first of the folds that set the threshold: "
                    "leave it None, or set calibration_folds=None or max_epochs.",
                )
            splits = folds_per_class(target[train], n_folds, random_state)
        folds = [(train[kept], train[out]) for kept, out in splits if len(out)]
        epochs, seen, known, warned, searched = None, None, (), False, None
        if folds:
            kept, out = folds[0]
            # Of a class that is held out as a whole, more epochs only make the network surer.
            known = out[np.isin(target[out], target[kept])]
        if len(known):
            parts = [
                self._training_set(inputs, target, weight, rows, rows is kept)
                for rows in (kept, self._few_enough(known))
            ]
            best = self._search(*parts)
            if best is None:
                return False
            epochs, searched = best.best_epoch_, self.net_
            warned = self._warn_of_chance(best.best_)
            seen = self._calibrate_out_of_fold(inputs, target, weight, folds, epochs, trained=True)
            if self.net_.interrupted_:
                return False
            epochs = self._epochs_on_all(epochs, len(kept) / len(train))
        self._found_epochs = None if epochs is None else math.ceil(epochs)
        data = self._training_set(inputs, target, weight, train, True)
        self._train(data, None, epochs, None, checkpoint, searched)
        self._allow_for_the_last(seen, inputs, weight, train)
        if not warned:
            self._check_training(inputs, target, train)
        return len(known) > 0

    def _epochs_on_all(self, epochs, share):
        """Return how long to train on all data where `epochs` were best on a share of them."""
        return epochs

    def _warn_of_chance(self, likelihood):
        """Warn where held-out labels are no likelier than by the shares; return whether so."""
        nothing_learnt = is_named(self.monitor, "auto") and likelihood <= self._chance
        if nothing_learnt:
            chance = self._chance / NO_BETTER
            self._say_that_nothing_was_learnt(_in_words("held-out", likelihood, chance))
        return nothing_learnt

    def _check_training(self, inputs, target, rows):
        """Warn where labels of training samples are no likelier than by the shares of classes."""
        if not inputs.in_memory:
            return
        most = min(MOST_CHECKED, max(MOST_SCORES_CHECKED // len(self.classes_), 1))
        for n_checked in (min(FEW_CHECKED, most), most):
            some = rows[:: -(-len(rows) // n_checked)]
            # In batches as large as those of the training, which fitted into memory.
            scores = np.concatenate([*self._iter_scores(inputs.subset(some), self.batch_size_)])
            log_proba = self._log_proba(scores)
            # By the shares in all samples: of many classes, few samples have one each.
            by_chance = np.log(self._prior)[target[some]]
            gained = log_proba[np.arange(len(some)), target[some]] - NO_BETTER * by_chance
            if _surely_positive(gained):
                return
        if gained.mean() > 0:
            return
        chance = float(by_chance.mean())
        likelihood = training.calibrated_log_likelihood(target[some], log_proba)
        if likelihood <= NO_BETTER * chance:
            self._say_that_nothing_was_learnt(_in_words("training", likelihood, chance))

    def _fit_held_out(
        self, inputs, target, weight, train, random_state, checkpoint, resume, n_folds
    ):
        """Train for the epochs asked for; return whether the rule was calibrated out of fold."""
        valid = None
        if self.validation_fraction is not None:
            kept, out = split_per_class(target[train], self.validation_fraction, random_state)
            if not len(out):
                raise ValueError(
                    f"validation_fraction={self.validation_fraction} holds no sample out: each "
                    "class has a single sample left to train on. Leave it None."
                )
            train, valid = train[kept], train[out]
            valid = self._training_set(inputs, target, weight, self._few_enough(valid), False)
        epochs = self._epochs_asked_for(resume)
        folds, seen = [], None
        if n_folds is not None:
            splits = folds_per_class(target[train], n_folds, random_state)
            folds = [(train[kept], train[out]) for kept, out in splits]
        if folds:
            as_long = epochs or self._usual_epochs(len(train), len(target))
            seen = self._calibrate_out_of_fold(inputs, target, weight, folds, as_long, valid)
            if self.net_.interrupted_:
                return False
        data = self._training_set(inputs, target, weight, train, True)
        self._train(data, valid, epochs, resume, checkpoint)
        self._allow_for_the_last(seen, inputs, weight, train)
        self._check_training(inputs, target, train)
        return len(folds) > 0

    def _usual_epochs(self, n_samples, n_whole):
        """Return the number of epochs that is not searched, for a part of the data."""
        recipe = self._recipe
        batch_size = training.resolve_batch_size(self.batch_size, n_whole, recipe)
        return recipe.epochs(training.count_batches(n_samples, batch_size))

    def _calibrate_out_of_fold(
        self, inputs, target, weight, folds, epochs, valid=None, trained=False
    ):
        """Calibrate the rule, where it has a threshold, on folds (kept, held out).

        The scores of each are those of a network that is trained for `epochs` without it, which
        that of the first is already if `trained`. Return how large the sets of these networks are
        for the samples that they were trained on.
        """

    def _allow_for_the_last(self, seen, inputs, weight, train):
        """Adjust the threshold to the last network.

        `seen` is the average size that the networks of the folds gave their own training samples.
        """

    def _likelihood(self, y_true, y_score, sample_weight):
        log_proba = self._log_proba(y_score)
        return training.calibrated_log_likelihood(y_true, log_proba, sample_weight)
