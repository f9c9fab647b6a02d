"""Administration: sessions and budgets, and who may use how much."""
