"""Keys that sign the tokens of waitpoints, and API tokens; for admins."""

from __future__ import annotations

import secrets
from typing import Final

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act, screen
from flowfabric.dashboard.view.durations import parse_length
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.states import Role, Scope

_GRACE: Final = "7d"


async def keys(visit: Visit) -> PageAnswer:
    """Both kinds of secrets, without the secrets."""
    values = {
        "kids": await visit.engine.list_waitpoint_hmac_kids(),
        "tokens": await visit.engine.list_tokens(),
    }
    return PageAnswer(template="keys.html", title="Keys", section="keys", values=values)


async def ask_rotate(visit: Visit) -> Dialog:
    kids = await visit.engine.list_waitpoint_hmac_kids()
    proposed = visit.now.strftime("k-%Y-%m-%d")
    return Dialog(
        question="Rotate the signing key?",
        effect="A new key, whose secret nobody sees, signs from now on. Tokens of the old one stay"
        " valid for the grace.",
        button="Rotate key",
        back="/keys",
        seen=kids.current_kid or "none",
        now=f"{kids.current_kid} signs now.",
        fields=[
            DialogField(name="kid", label="Name of the new key", value=proposed, required=True),
            DialogField(name="grace", label="Grace", value=_GRACE, hint="Such as 12h or 7d."),
        ],
    )


async def do_rotate(visit: Visit, form: SentForm) -> ActDone:
    grace = parse_length(form.text("grace").strip())
    if grace is None:
        raise FormProblem("grace", "must look like 12h or 7d")
    form.reason()
    kid = form.text("kid").strip()
    await visit.engine.rotate_waitpoint_hmac_secret_all(
        kid, secrets.token_hex(32), grace, actor=visit.actor
    )
    return ActDone(message=f"{kid} signs from now on.")


async def ask_token(visit: Visit) -> Dialog:
    return Dialog(
        question="Make an API token?",
        effect="Whoever has the token may do what its role allows, in its namespaces.",
        button="Make token",
        back="/keys",
        reason=False,
        fields=[
            DialogField(
                name="label", label="Label", hint="Events name it as the actor.", required=True
            ),
            DialogField(
                name="role",
                label="Role",
                kind="select",
                value=Role.READER.value,
                choices=[(each.value, each.value) for each in Role],
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
    made = await visit.engine.create_token(
        form.text("label").strip(),
        role=form.text("role"),
        namespaces=form.text("namespaces").split() or ["*"],
        hide_payloads=form.text("hide") == "yes",
        expires_in=expires,
        actor=visit.actor,
    )
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
    act("/keys/rotate", ask_rotate, do_rotate, Scope.ADMIN),
    act("/tokens/new", ask_token, do_token, Scope.ADMIN),
    act("/tokens/{token_id}/revoke", ask_revoke, do_revoke, Scope.ADMIN),
)
