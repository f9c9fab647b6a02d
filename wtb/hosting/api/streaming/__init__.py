"""Events as they happen, for whoever follows: what is read, when, and the requests that stay open."""
