"""The version of WTB, from which the distribution takes its own."""

__version__ = "0.1.0"
