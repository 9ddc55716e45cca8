"""Roles with fewer rights than the owner of the schema: one for processes, one for readers.

The role that runs `ff migrate` owns the schema. A `runtime` role reads and writes the tables and
cannot change the schema; workers, clients and operators need no more. A `read` role reads every
table but not the secrets of keys. Every run of `ff migrate` grants again to the roles that
`ff.role_annotation` lists, so that a new table needs no second thought.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.errors import ConfigError
from flowfabric.states import RoleAccess

ROLES: Final[LiteralString] = """
-- db.grant_roles: which of these roles exist, and may be given less than everything?
SELECT r.rolname::text AS name, r.rolsuper AS superuser,
       pg_has_role(r.oid, n.nspowner, 'USAGE') AS owner
  FROM pg_roles r, pg_namespace n
 WHERE r.rolname = ANY (%(names)s::text[]) AND n.nspname = 'ff'
"""

REMEMBER: Final[LiteralString] = """
-- db.grant_roles: remember a role
INSERT INTO ff.role_annotation (role_name, access) VALUES (%(name)s, %(access)s)
    ON CONFLICT (role_name) DO UPDATE SET access = EXCLUDED.access
"""

REMEMBERED: Final[LiteralString] = """
-- db.grant_roles: the roles that still exist
SELECT a.role_name AS name, a.access
  FROM ff.role_annotation a JOIN pg_roles r ON r.rolname = a.role_name
 ORDER BY a.role_name
"""

CHOOSE: Final[LiteralString] = """
-- db.grant_roles: whom the next statement is about
SELECT set_config('flowfabric.role', %(name)s, true),
       set_config('flowfabric.access', %(access)s, true)
"""

# A block, because GRANT takes no parameters; %I quotes the name of the role. The ledgers of
# `ff migrate` are written by the owner only.
GRANT: Final[LiteralString] = """
DO $$
DECLARE
    role constant text := current_setting('flowfabric.role');
    table_name text;
BEGIN
    EXECUTE format('REVOKE ALL ON SCHEMA ff FROM %I', role);
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA ff FROM %I', role);
    EXECUTE format('GRANT USAGE ON SCHEMA ff TO %I', role);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA ff TO %I', role);
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ff TO %I', role);
    IF current_setting('flowfabric.access') = 'read' THEN
        EXECUTE format('REVOKE ALL ON ff.waitpoint_hmac FROM %I', role);
        EXECUTE format(
            'GRANT SELECT (kid, rotated_at_ms, active, expires_at_ms) ON ff.waitpoint_hmac TO %I',
            role);
        RETURN;
    END IF;
    FOR table_name IN SELECT c.relname FROM pg_class c
                       WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind IN ('r', 'p')
                         AND c.relname NOT LIKE '%\\_annotation' LOOP
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON ff.%I TO %I', table_name, role);
    END LOOP;
END
$$
"""


class Granted(msgspec.Struct, frozen=True):
    """A role and what it may do."""

    name: str
    access: RoleAccess


class _Role(msgspec.Struct, frozen=True):
    name: str
    superuser: bool
    owner: bool


async def grant_roles(conn: Connection, roles: Mapping[str, RoleAccess]) -> list[Granted]:
    """The given roles and those of earlier runs have their rights, and no others in schema `ff`.

    Runs in the caller's transaction. Raises `ConfigError` for a role that does not exist, or that
    has every right anyway.
    """
    await _check(conn, roles)
    for name, access in roles.items():
        await execute(conn, REMEMBER, name=name, access=access)
    granted = await fetch_all(conn, REMEMBERED, Granted)
    for role in granted:
        await execute(conn, CHOOSE, name=role.name, access=role.access)
        await conn.execute(GRANT)
    return granted


async def _check(conn: Connection, roles: Mapping[str, RoleAccess]) -> None:
    found = {row.name: row for row in await fetch_all(conn, ROLES, _Role, names=list(roles))}
    for name, access in roles.items():
        role = found.get(name)
        if role is None:
            why = f"role {name!r} does not exist; create it: CREATE ROLE … LOGIN PASSWORD …"
        elif role.superuser or role.owner:
            has = "is a superuser" if role.superuser else "owns the schema"
            why = f"role {name!r} {has}, so it has every right; name another role"
        else:
            continue
        raise ConfigError("migrate", f"{access}_role", why)
