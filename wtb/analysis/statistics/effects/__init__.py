"""Main effects of factors and interactions of pairs of factors, with the case or its cluster as the unit."""
