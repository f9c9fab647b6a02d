"""How browsers show who asks: codes, cookies, and what tells their own pages from others."""
