"""The context of a node, `ctx`: everything it is given besides the state."""
