-- Sends a NOTIFY for a topic when the transaction commits, but only if a row of ff.waiter says that a
-- process waits for the topic now: NOTIFY serialises commits of the whole database. Postgres sends
-- equal notifications of one transaction once. Returns whether the topic has a waiter.
--
-- The planner setting is bound: the plan of a function is cached, and one made while the table was
-- small would read the whole of it for every statement that makes work claimable.
CREATE OR REPLACE FUNCTION ff.wake(rung_topic text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
    AS $$
BEGIN
    IF EXISTS (SELECT FROM ff.waiter
                WHERE topic = rung_topic AND waiting_until_ms > ff.now_ms()) THEN
        PERFORM pg_notify('ff_wake', rung_topic);
        RETURN true;
    END IF;
    RETURN false;
END
$$;
