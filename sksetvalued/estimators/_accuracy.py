"""The accuracy of predictions, for labels of every kind that `fit` takes."""

from sklearn.base import ClassifierMixin

from .._arrays import as_labels


class AccuracyMixin(ClassifierMixin):
    """scikit-learn's, with labels read as `fit` reads them: dates that are objects, too."""

    def score(self, X, y, sample_weight=None):
        """Return the share of samples whose label is predicted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever else `fit` takes
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
        """
        return super().score(X, as_labels(y, "y"), sample_weight)
