"""Read projects of other tools as workflows and sweep files."""
