"""Users' code: importing, calling and describing it, and comparing it with its recorded state."""
