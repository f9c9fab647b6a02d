"""How it is shown. Everything here is given documents, and decides nothing."""
