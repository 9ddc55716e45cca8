"""The alphabet of states: what Python derives is what the database generates and allows."""

from __future__ import annotations

from itertools import product

from flowfabric.db.rows import Connection
from flowfabric.states import (
    AttemptState,
    EligibilityState,
    FailureClass,
    LifecyclePhase,
    OwnershipState,
    PublicState,
    TerminalOutcome,
    derive_public_state,
)
from tests.all_cases import all_cases

A_TABLE_WITHOUT_CHECKS = (
    "CREATE TEMP TABLE vectors (LIKE ff.exec_core INCLUDING GENERATED INCLUDING DEFAULTS)"
)

STORE_VECTORS = """
INSERT INTO vectors (partition_key, attempt_index, execution_id, route_id, created_at_ms,
                     last_mutation_at_ms, lease_epoch, priority, total_attempt_count, retry_count,
                     replay_count, lease_reclaim_count, lease_lost, blocking_reason, attempt_state,
                     tags, lifecycle_phase, eligibility_state, terminal_outcome, resume_pending)
SELECT 0, 0, gen_random_uuid(), 0, v.ordinal, 0, 0, 0, 0, 0, 0, 0, false, 'none', 'none', '{}',
       v.phase, v.eligibility, v.outcome, v.resumes
  FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) WITH ORDINALITY
       AS v (phase, eligibility, outcome, resumes, ordinal)
"""
VIEW = "SELECT pg_get_viewdef('ff.execution'::regclass)"

# Inserts each vector with the columns that go with its phase; answers those that were allowed.
TRY_VECTORS = """
CREATE FUNCTION pg_temp.storable(phase text, eligibility text, outcome text, attempt text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ff.exec_core (partition_key, execution_id, route_id, created_at_ms,
        last_mutation_at_ms, blocking_reason, lifecycle_phase, eligibility_state, terminal_outcome,
        attempt_state, delay_until_ms, terminal_at_ms)
    SELECT 0, gen_random_uuid(), 0, 0, 0, 'none', phase, eligibility, outcome, attempt,
           CASE WHEN eligibility = 'not_eligible_until_time' THEN 1 END,
           CASE WHEN phase = 'terminal' THEN 1 END;
    RETURN true;
EXCEPTION WHEN check_violation THEN
    RETURN false;
END
$$
"""

LEASE_ALL = """
INSERT INTO ff.lease (
       partition_key, execution_id, attempt_index, lease_id, lease_epoch, lease_expires_at_ms,
       last_mutation_at_ms, attempt_started_at_ms, lease_reclaim_count, attempt_recorded,
       attempt_type, worker_id, worker_instance_id)
SELECT partition_key, execution_id, attempt_index, gen_random_uuid(), lease_epoch + 1, 1, 1, 1, 0,
       false, 'initial', 'w', 'w-1' FROM ff.exec_core
"""
AS_SEEN = """
SELECT lifecycle_phase, eligibility_state, terminal_outcome, attempt_state, public_state,
       ownership_state FROM ff.execution
"""

Vector = tuple[LifecyclePhase, EligibilityState, TerminalOutcome, AttemptState]


def legal(vector: Vector) -> bool:
    """The constraints of executions.md section 4, in their words."""
    phase, eligibility, outcome, attempt = vector
    blocked_or_eligible = eligibility is not EligibilityState.NOT_APPLICABLE
    ended = outcome is not TerminalOutcome.NONE
    running = attempt is AttemptState.RUNNING_ATTEMPT
    match phase:
        case LifecyclePhase.ACTIVE:
            return not blocked_or_eligible and running and not ended
        case LifecyclePhase.SUSPENDED:
            return not blocked_or_eligible and not running and not ended
        case LifecyclePhase.TERMINAL:
            return not blocked_or_eligible and not running and ended
        case LifecyclePhase.RUNNABLE:
            return blocked_or_eligible and not running and not ended


async def test_the_database_computes_what_python_derives(db: Connection) -> None:
    await db.execute(A_TABLE_WITHOUT_CHECKS)
    vectors = [
        vector
        for vector in product(LifecyclePhase, EligibilityState, TerminalOutcome, (False, True))
        if vector[0] is not LifecyclePhase.ACTIVE
        and (vector[0] is not LifecyclePhase.TERMINAL or vector[2] is not TerminalOutcome.NONE)
    ]

    await db.execute(STORE_VECTORS, *zip(*vectors, strict=True))
    view = (await db.fetchval(VIEW)).rstrip(";").replace("ff.exec_core e", "pg_temp.vectors e")
    rows = await db.fetch(f"SELECT * FROM ({view}) AS seen ORDER BY created_at_ms")

    assert len(rows) == len(vectors) == (3 * 9 * 6 - 9) * 2
    for row, (phase, eligibility, outcome, resume_pending) in zip(rows, vectors, strict=True):
        derived = derive_public_state(phase, eligibility, outcome, resume_pending=resume_pending)
        assert row["public_state"] == derived, row


async def test_an_execution_is_active_exactly_while_it_has_a_lease(db: Connection) -> None:
    await db.execute(TRY_VECTORS)
    for attempt in AttemptState:
        await db.fetchval(
            "SELECT pg_temp.storable('runnable', 'eligible_now', 'none', $1)", attempt
        )
    attempts = set(AttemptState) - {AttemptState.RUNNING_ATTEMPT}
    unowned = ("runnable", "eligible_now", "none")
    assert {tuple(row) for row in await db.fetch(AS_SEEN)} == {
        (*unowned, attempt, PublicState.WAITING, OwnershipState.UNOWNED) for attempt in attempts
    }

    await db.execute(LEASE_ALL)

    phase, eligibility = LifecyclePhase.ACTIVE, EligibilityState.NOT_APPLICABLE
    outcome, attempt = TerminalOutcome.NONE, AttemptState.RUNNING_ATTEMPT
    public = derive_public_state(phase, eligibility, outcome, resume_pending=False)
    assert legal((phase, eligibility, outcome, attempt))
    assert {tuple(row) for row in await db.fetch(AS_SEEN)} == {
        (phase, eligibility, outcome, attempt, public, OwnershipState.LEASED)
    }


@all_cases("eligibility", EligibilityState)
def test_an_end_without_an_outcome_reads_as_failed(eligibility: EligibilityState) -> None:
    derived = derive_public_state(
        LifecyclePhase.TERMINAL, eligibility, TerminalOutcome.NONE, resume_pending=False
    )

    assert derived is PublicState.FAILED


async def test_exactly_the_legal_vectors_can_be_stored(db: Connection) -> None:
    await db.execute(TRY_VECTORS)
    vectors = list(product(LifecyclePhase, EligibilityState, TerminalOutcome, AttemptState))

    rows = await db.fetch(
        "SELECT v.*, pg_temp.storable(phase, eligibility, outcome, attempt) AS storable"
        " FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])"
        " AS v (phase, eligibility, outcome, attempt)",
        *zip(*vectors, strict=True),
    )

    stored = {tuple(row)[:4] for row in rows if row["storable"]}
    # An active execution is stored as a lease beside its row.
    assert stored == {
        vector for vector in vectors if vector[0] is not LifecyclePhase.ACTIVE and legal(vector)
    }
    assert len(stored) == 6 + 5 * 6 + 8 * 6


async def test_a_word_outside_the_alphabet_cannot_be_stored(db: Connection) -> None:
    await db.execute(TRY_VECTORS)
    usual = ["runnable", "eligible_now", "none", "pending_first_attempt"]
    assert await db.fetchval("SELECT pg_temp.storable($1, $2, $3, $4)", *usual)

    for word, position in product(["submitted", "cancelled", "blocked", "RUNNABLE", ""], range(4)):
        vector = [*usual[:position], word, *usual[position + 1 :]]
        assert not await db.fetchval("SELECT pg_temp.storable($1, $2, $3, $4)", *vector)


def test_the_public_states_that_are_ends() -> None:
    ends = {state for state in PublicState if state.is_terminal}

    assert ends == {"completed", "failed", "cancelled", "expired", "skipped"}


def test_a_category_names_its_class_and_one_of_the_users_own_is_transient() -> None:
    assert [FailureClass.of(word.value) for word in FailureClass] == list(FailureClass)
    assert FailureClass.of("card_declined") is FailureClass.TRANSIENT
    assert FailureClass.of("") is FailureClass.TRANSIENT
    assert FailureClass.of("PERMANENT") is FailureClass.TRANSIENT
