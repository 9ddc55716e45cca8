"""Keys that sign the tokens of waitpoints, and API tokens; for admins."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final

from flowfabric.dashboard.access import session_cookie
from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, Preview, act, screen
from flowfabric.dashboard.view.durations import parse_length, relative
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.states import Role, Scope

_GRACE: Final = "7d"
_FIRST: Final = (
    "It is the first one. From then on the dashboard and the API are closed to everybody without a"
    " token, so it is an admin's. This browser is logged in with it; keep it for other programs."
)


async def keys(visit: Visit) -> PageAnswer:
    """Both kinds of secrets, without the secrets."""
    values = {
        "kids": await visit.engine.list_waitpoint_hmac_kids(),
        "uses": {each.kid: each for each in await visit.engine.count_waitpoints_by_kid()},
        "tokens": await visit.engine.list_tokens(),
    }
    return PageAnswer(template="keys.html", title="Keys", section="keys", values=values)


async def preview_rotate(visit: Visit, form: SentForm) -> Preview:
    """Which open waitpoints need the key that signs now for longer than the grace."""
    kid = (await visit.engine.list_waitpoint_hmac_kids()).current_kid
    use = next((x for x in await visit.engine.count_waitpoints_by_kid() if x.kid == kid), None)
    if use is None:
        return Preview(text="")
    grace = _grace(form)
    counted = f"{use.open_waitpoints:,} open waitpoints have tokens of {kid}"
    if use.last_expiry is None:
        return Preview(text=f"{counted}; some never expire, and are refused once it is over.")
    last = relative(use.last_expiry, visit.now)
    if use.last_expiry > visit.now + grace:
        return Preview(text=f"{counted}; the last expires {last}, and is refused before.")
    return Preview(text=f"{counted}; the last expires {last}, within the grace.")


def _grace(form: SentForm) -> timedelta:
    grace = parse_length(form.text("grace").strip())
    if grace is None:
        raise FormProblem("grace", "must look like 12h or 7d")
    return grace


async def ask_rotate(visit: Visit) -> Dialog:
    kids = await visit.engine.list_waitpoint_hmac_kids()
    proposed = visit.now.strftime("k-%Y-%m-%d")
    if proposed in (kids.current_kid, *(each.kid for each in kids.verifying)):
        proposed = visit.now.strftime("k-%Y-%m-%d-%H%M")
    return Dialog(
        question="Rotate the signing key?",
        effect="A new key signs from now on. Tokens of the old one stay valid for the grace.",
        button="Rotate key",
        back="/keys",
        seen=kids.current_kid or "none",
        now=f"{kids.current_kid} signs now.",
        fields=[
            DialogField(name="kid", label="Name of the new key", value=proposed, required=True),
            DialogField(name="grace", label="Grace", value=_GRACE, hint="Such as 12h or 7d."),
            DialogField(
                name="secret",
                label="Secret",
                kind="password",
                hint="Hexadecimal. Empty: made here, and never shown.",
            ),
        ],
    )


async def do_rotate(visit: Visit, form: SentForm) -> ActDone:
    form.reason()
    kid = form.text("kid").strip()
    await visit.engine.rotate_waitpoint_hmac_secret_all(
        kid,
        form.text("secret").strip() or secrets.token_hex(32),
        _grace(form),
        actor=visit.actor,
    )
    return ActDone(message=f"{kid} signs from now on.")


async def ask_token(visit: Visit) -> Dialog:
    first = await visit.site.access.is_first_token(visit.principal)
    roles = (Role.ADMIN,) if first else tuple(Role)
    return Dialog(
        question="Make an API token?",
        effect="A program or person with the token may do what its role allows, in its namespaces.",
        button="Make token",
        back="/keys",
        warning=_FIRST if first else "",
        fields=[
            DialogField(
                name="label", label="Label", hint="Events name it as the actor.", required=True
            ),
            DialogField(
                name="role",
                label="Role",
                kind="select",
                value=roles[0].value,
                choices=[(each.value, each.value) for each in roles],
            ),
            DialogField(
                name="namespaces", label="Namespaces", value="*", hint="With spaces; * for all."
            ),
            DialogField(name="expires", label="Expires in", value="90d", hint="Empty: never."),
            DialogField(name="hide", label="Hide payloads", kind="check"),
        ],
    )


async def do_token(visit: Visit, form: SentForm) -> ActDone:
    given = form.text("expires").strip()
    expires = parse_length(given) if given else None
    if given and expires is None:
        raise FormProblem("expires", "must look like 12h or 90d")
    role, namespaces = form.text("role"), form.text("namespaces").split() or ["*"]
    first = await visit.site.access.is_first_token(visit.principal)
    if first and role != Role.ADMIN:
        raise FormProblem("role", "must be admin: nobody could make another token")
    if first and "*" not in namespaces:
        raise FormProblem("namespaces", "must be *: nobody could make another token")
    made = await visit.engine.create_token(
        form.text("label").strip(),
        role=role,
        namespaces=namespaces,
        hide_payloads=form.text("hide") == "yes",
        expires_in=expires,
        actor=visit.actor,
    )
    if first:
        agent = visit.headers.get(b"user-agent", b"").decode("latin-1")
        secret = await visit.site.access.stay(
            made.token, made.label, address=visit.address, user_agent=agent
        )
        visit.set_cookies.append(session_cookie(secret, secure=visit.secure))
    return ActDone(message=f"The token {made.label}", secret=made.token, to=visit.url("/keys"))


async def ask_revoke(visit: Visit) -> Dialog:
    wanted = visit.uuid("token_id")
    for each in await visit.engine.list_tokens():
        if each.token_id == wanted:
            return Dialog(
                question=f"Revoke the token {each.label}?",
                effect="Within ten seconds it opens nothing any more, and its sessions end.",
                button="Revoke token",
                back="/keys",
                danger=True,
            )
    raise not_found("There is no such token.")


async def do_revoke(visit: Visit, form: SentForm) -> ActDone:
    form.reason()
    answer = await visit.engine.revoke_token(visit.uuid("token_id"), actor=visit.actor)
    return ActDone(message=f"The token {answer.label} is revoked.")


ROUTES: Final = (
    screen("/keys", keys, Scope.ADMIN),
    act("/keys/rotate", ask_rotate, do_rotate, Scope.ADMIN, preview=preview_rotate),
    act("/tokens/new", ask_token, do_token, Scope.ADMIN),
    act("/tokens/{token_id}/revoke", ask_revoke, do_revoke, Scope.ADMIN),
)
