-- How a daemon of version 1 sets up each connection, timeout_ms=2500.
SET statement_timeout = 2500; SET lock_timeout = 1250; SET idle_in_transaction_session_timeout = 2500;
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET jit = off; SET max_parallel_workers_per_gather = 0; SET default_transaction_isolation = 'read committed';
SET search_path = pg_catalog; SET client_min_messages = error; SET TimeZone = 'UTC'; SET synchronous_commit = 'on';
