"""The authoring API: workflows, nodes and variants, the shape of their state, tools, breakpoints, policies."""
