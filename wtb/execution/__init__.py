"""The life of an execution: claimed, advanced node by node, forked, joined, recorded, ended."""
