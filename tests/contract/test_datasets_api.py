"""Tests of datasets and the runs that need them."""

from backend.storage.models import Run

VALID_ROWS = b'{"prompt": "1+1=?", "answer": "2"}\n{"prompt": "1+2=?", "answer": 3}\n'
BINARY_HEADERS = {"Content-Type": "application/octet-stream"}


def upload(client):
    response = client.post(
        "/api/v1/datasets", params={"name": "sums.jsonl"}, content=VALID_ROWS, headers=BINARY_HEADERS
    )
    assert response.status_code in {200, 201}, response.text
    return response.json()


def launch_on(client, path):
    body = {"name": "n", "base": {"problems": [{"name": "file", "path": path}]}, "variants": [{"name": "v"}]}
    response = client.post("/api/v1/experiments", json=body)
    assert response.status_code == 201, response.text
    return response.json()["runs"][0]


def test_a_run_records_its_dataset_and_prevents_its_deletion(client, database):
    uploaded_dataset = upload(client)
    run = launch_on(client, uploaded_dataset["path"])
    [problem] = client.get(f"/api/v1/runs/{run['id']}").json()["config"]["problems"]
    assert (problem["path"], problem["sha256"]) == (uploaded_dataset["path"], uploaded_dataset["sha256"])
    rejected_response = client.delete(f"/api/v1/datasets/{uploaded_dataset['sha256']}")
    assert rejected_response.status_code == 409
    assert run["name"] in rejected_response.json()["detail"]
    client.post(f"/api/v1/runs/{run['id']}/stop")
    assert (
        client.delete(f"/api/v1/datasets/{uploaded_dataset['sha256']}").status_code == 409
    )  # it may be resumed
    with database.sessions.begin() as session:
        session.get_one(Run, run["id"]).status = "finished"
    assert client.delete(f"/api/v1/datasets/{uploaded_dataset['sha256']}").status_code == 200
