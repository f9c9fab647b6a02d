-- The roles of WTB, none of which may do more with the server: wtb owns its database and migrates it, wtb_worker runs
-- workers and the scheduler, wtb_server answers requests within the walls of docs/security.md. Run as a superuser: by the
-- image of PostgreSQL when it makes its data, or by hand in a database of before, then `wtb admin db upgrade`; see docs/workers.md.
\set ON_ERROR_STOP on
\getenv password WTB_DATABASE_PASSWORD
\getenv worker WTB_WORKER_PASSWORD
\getenv server WTB_SERVER_PASSWORD
SELECT 'CREATE ROLE wtb' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'wtb') \gexec
ALTER ROLE wtb LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'password';
SELECT 'CREATE ROLE wtb_worker' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'wtb_worker') \gexec
ALTER ROLE wtb_worker LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'worker';
SELECT 'CREATE ROLE wtb_server' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'wtb_server') \gexec
ALTER ROLE wtb_server LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'server';
GRANT wtb_worker, wtb_server TO wtb;
SELECT 'CREATE DATABASE wtb OWNER wtb' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'wtb') \gexec
ALTER DATABASE wtb OWNER TO wtb;
\connect wtb
ALTER SCHEMA public OWNER TO wtb;
SELECT format('ALTER TABLE %s OWNER TO wtb', oid::regclass) FROM pg_class
WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND relnamespace = 'public'::regnamespace
AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i', 'e')) \gexec
