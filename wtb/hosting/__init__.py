"""Who hosts it: the servers of one machine, the stack of `wtb up`, and checks of all that."""
