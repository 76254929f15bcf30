"""What untouched estimators give, beside what other classifiers give."""
