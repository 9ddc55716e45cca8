-- CRC-16/XMODEM of the bytes: the hash by which ids are assigned to partitions.
CREATE OR REPLACE FUNCTION ff.crc16(data bytea) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    crc integer := 0;
    x integer;
BEGIN
    FOR i IN 0 .. octet_length(data) - 1 LOOP
        x := (crc >> 8) # get_byte(data, i);
        x := x # (x >> 4);
        crc := ((crc << 8) # (x << 12) # (x << 5) # x) & 65535;
    END LOOP;
    RETURN crc;
END
$$;
