"""Optional capabilities, each with its operations, commands, texts and queries in one package."""
