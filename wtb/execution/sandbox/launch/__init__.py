"""How a node process comes to be: it is started below its reaper, and carries the marks of its runner."""
