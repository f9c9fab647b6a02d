"""The engine port, the engine of native workflows, and what surrounds one attempt."""
