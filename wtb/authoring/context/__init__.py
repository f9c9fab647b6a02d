"""What a node is given besides the state: `ctx`."""
