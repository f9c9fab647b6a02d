"""Built-in evaluators by what they score: texts, records, quantities, rankings, trajectories, safety, and others."""
