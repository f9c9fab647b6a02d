"""Built-in evaluators by what they score: texts, records, rankings."""
