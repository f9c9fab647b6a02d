"""An agent that answers questions about a shop, with a table to look things up in and a calculator."""
