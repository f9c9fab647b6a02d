"""Access and its limits: users, tokens, projects, sessions, budgets, reservations, and the audit log."""
