"""The start of node processes: below their reapers, behind walls, with the marks of their runner."""
