"""Sessions, budgets, reservations, and limits of nodes."""
