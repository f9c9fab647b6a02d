"""The command line. `commands` lists all commands; the module of one is imported when it is used."""
