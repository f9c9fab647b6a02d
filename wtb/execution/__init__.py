"""How an execution lives: claimed, advanced node by node, forked, joined, recorded, ended."""
