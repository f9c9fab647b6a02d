"""Who may ask a server, what they may see and do, and what of the database they are limited to."""
