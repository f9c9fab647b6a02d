"""The engine port, the engine of native workflows, and the surroundings of one attempt."""
