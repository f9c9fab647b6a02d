"""Who may do what, as pure values."""
