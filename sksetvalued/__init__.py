"""Set-valued classification with deep networks, the scikit-learn way."""

__version__ = "0.1.0"
