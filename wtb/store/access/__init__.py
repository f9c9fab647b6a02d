"""Who may ask a server, and what is known of them."""
