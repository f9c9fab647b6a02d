"""The version of WTB: from here it goes into the distribution, too."""

__version__ = "0.1.0"
