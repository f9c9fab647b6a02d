"""The benchmarks of `make bench`: ratios measured side by side, the median of several rounds, without start-up."""
