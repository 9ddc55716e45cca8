-- Sends a NOTIFY for a topic when the transaction commits, but only if ff.waiter has a process that waits
-- for the topic: NOTIFY serialises the commits of the whole database. Postgres sends equal notifications
-- of one transaction once. Returns whether the topic has a waiter.
--
-- The planner setting is bound: the plan of a function is cached, and a plan made while the table was
-- small would read the whole table in every statement that makes executions claimable.
CREATE OR REPLACE FUNCTION ff.wake(p_topic text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    AS $$
BEGIN
    IF EXISTS (SELECT FROM ff.waiter
                WHERE topic = p_topic AND waiting_until_ms > ff.now_ms()) THEN
        PERFORM pg_notify('ff_wake', p_topic);
        RETURN true;
    END IF;
    RETURN false;
END
$$;
