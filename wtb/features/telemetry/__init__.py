"""Traces of sweeps for collectors of OpenTelemetry."""
