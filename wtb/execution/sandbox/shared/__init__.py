"""Node processes that many node runs share: both sides of one, and what keeps its node runs apart."""
