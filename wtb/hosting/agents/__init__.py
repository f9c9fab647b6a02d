"""What agents use: a server of the Model Context Protocol over the operations of the registry."""
