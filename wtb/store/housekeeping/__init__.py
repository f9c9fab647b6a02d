"""Retention, deletion and erasure, copies of sweeps and databases, pools, and unreferenced or damaged values."""
