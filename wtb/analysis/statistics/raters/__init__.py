"""What can be said of raters: how far they agree, and what judgements add to a few labels of people."""
