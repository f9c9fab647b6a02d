"""The command line. Modules here import nothing heavy at their top, so that `wtb --help` is quick."""
