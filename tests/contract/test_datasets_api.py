"""Tests of datasets and the runs that need them."""

from backend.storage.models import Run

GOOD = b'{"prompt": "1+1=?", "answer": "2"}\n{"prompt": "1+2=?", "answer": 3}\n'
RAW = {"Content-Type": "application/octet-stream"}


def put(client):
    answer = client.post("/api/v1/datasets", params={"name": "sums.jsonl"}, content=GOOD, headers=RAW)
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()


def launched_on(client, path):
    body = {"name": "n", "base": {"problems": [{"name": "file", "path": path}]}, "variants": [{"name": "v"}]}
    answer = client.post("/api/v1/experiments", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["runs"][0]


def test_a_run_records_what_it_trains_on_and_keeps_it_from_being_deleted(client, database):
    uploaded = put(client)
    run = launched_on(client, uploaded["path"])
    [problem] = client.get(f"/api/v1/runs/{run['id']}").json()["config"]["problems"]
    assert (problem["path"], problem["sha256"]) == (uploaded["path"], uploaded["sha256"])
    refused = client.delete(f"/api/v1/datasets/{uploaded['sha256']}")
    assert refused.status_code == 409
    assert run["name"] in refused.json()["detail"]
    client.post(f"/api/v1/runs/{run['id']}/stop")
    assert client.delete(f"/api/v1/datasets/{uploaded['sha256']}").status_code == 409  # it may be resumed
    with database.sessions.begin() as session:
        session.get_one(Run, run["id"]).status = "finished"
    assert client.delete(f"/api/v1/datasets/{uploaded['sha256']}").status_code == 200
