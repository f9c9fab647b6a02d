"""What `make bench` measures: ratios side by side in one run, the median of several rounds, start-up excluded."""
