"""The store: one schema, one chain of migrations, PostgreSQL and SQLite alike. All queries live here."""
