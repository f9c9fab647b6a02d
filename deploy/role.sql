-- The role that all parts of WTB use: it owns its database, and may do nothing else with the server. Run as a superuser:
-- by the image of PostgreSQL when it makes its data, or by hand in a database of before; see docs/workers.md.
\set ON_ERROR_STOP on
\getenv password WTB_DATABASE_PASSWORD
SELECT 'CREATE ROLE wtb' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'wtb') \gexec
ALTER ROLE wtb LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'password';
SELECT 'CREATE DATABASE wtb OWNER wtb' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'wtb') \gexec
ALTER DATABASE wtb OWNER TO wtb;
\connect wtb
ALTER SCHEMA public OWNER TO wtb;
SELECT format('ALTER TABLE %s OWNER TO wtb', oid::regclass) FROM pg_class
WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND relnamespace = 'public'::regnamespace
AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i', 'e')) \gexec
