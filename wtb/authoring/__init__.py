"""What authors write: workflows, nodes and variants, the shape of their state, tools, breakpoints."""
