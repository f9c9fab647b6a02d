"""What a person tries out while a sweep is written: a file of cases, an evaluator."""
