"""Display of results. Everything here is given documents, and decides nothing."""
