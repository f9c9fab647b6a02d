"""The store: one schema, one chain of migrations, PostgreSQL and SQLite alike. Features have their own queries."""
