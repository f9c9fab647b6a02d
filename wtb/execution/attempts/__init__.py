"""The attempts of a node run: what each reports, what it leaves to the next one, and whether there is a next one."""
