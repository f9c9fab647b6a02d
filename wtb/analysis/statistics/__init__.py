"""Statistics of the scores of one metric: means, intervals, differences, tests, power, main effects and fronts.

The case is the unit: a row of `scores` is a combination, a column a case, repeats already averaged, NaN where a
combination has no score. Import it only where a matrix is made: it needs numpy. A figure that the data do not define is
NaN inside these modules and None outside: never NaN, never a guess.
"""

from wtb.analysis.statistics.claims import SIGNIFICANT
from wtb.analysis.statistics.comparing import Better, Comparison, Design, Estimate, Lead, compare
from wtb.analysis.statistics.intervals import RESAMPLES, Floats, Interval, wilson
from wtb.analysis.statistics.paired import holm, paired_tests

__all__ = [
    "RESAMPLES",
    "SIGNIFICANT",
    "Better",
    "Comparison",
    "Design",
    "Estimate",
    "Floats",
    "Interval",
    "Lead",
    "compare",
    "holm",
    "paired_tests",
    "wilson",
]
