"""Commands about progress, history, figures, comments and comparisons."""
