"""The application: what users can do with sweeps and executions, from Python and from the command line."""
