"""Commands on who may ask a server, and what they did."""
