"""Every noun over HTTP, from submit to outcome."""

from tests.server.conftest import Caller


async def test_an_execution_is_submitted_claimed_and_completed(http: Caller) -> None:
    created = await http.post(
        "/v1/executions", json={"execution_kind": "job", "input": {"n": 2**70}}
    )
    assert created.status_code == 201, created.text
    execution_id = created.json()["execution_id"]
    assert created.json() == {
        "result": "created",
        "execution_id": execution_id,
        "public_state": "waiting",
    }
    where = created.headers["location"]

    claimed = await http.post(
        "/v1/work/claim", json={"worker_id": "w", "worker_instance_id": "w-1", "ttl": 30}
    )
    assert claimed.status_code == 200, claimed.text
    [work] = claimed.json()["executions"]
    assert work["input"] == {"n": 2**70}
    done = await http.post(
        "/v1/work/complete",
        json={"completions": [{"handle": work["handle"], "result": {"ok": True}}]},
    )
    assert done.json() == {
        "results": [{"result": "completed", "execution_id": execution_id, "repeated": False}]
    }, done.text

    outcome = await http.get(f"{where}/outcome?wait=1")
    assert outcome.json()["result"] == {"ok": True}
    raw = await http.get(f"{where}/result")
    assert (raw.content, raw.headers["content-type"]) == (b'{"ok":true}', "application/json")
    described = await http.get(f"{where}?include=attempts,explanation,outcome,history")
    assert described.status_code == 200, described.text
    again = await http.get(where, headers={"if-none-match": described.headers["etag"]})
    assert again.status_code == 304
