"""docs/architecture.md lists the files that a request passes through."""

import asyncio
from itertools import chain
from pathlib import Path

from tests.helpers.walk import Walk, rows_on_page
from tests.service.harness import SPEC, keys_in, served

HTTP = rows_on_page("## An HTTP round", "Tests trace a round")


def test_architecture_page_lists_the_files_of_a_round(tmp_path: Path) -> None:
    assert 5 < len(HTTP) <= 12
    walk = Walk()
    with walk.following():
        path, keys = keys_in(tmp_path)
        with served(tmp_path, keys=path) as service:
            service.post("/v1/cascades", SPEC, key=keys["admin"])
            with walk.recording():
                url = "/v1/cascades/triage/rounds"
                answer = service.post(url, {"context": [0.2, 0.7]}, key=keys["decide"])
                service.run(asyncio.sleep(0))  # the response is counted after it was sent
            assert answer.status_code == 201
    service_files = [name for name in walk.files if name.startswith("service/")]
    passed = {name.removeprefix("service/") for name in service_files}
    types_only = {"domain/messages.py"}
    concurrent = {"serve.py"}  # may report at the same time that the service is ready
    assert passed - concurrent == set(chain(*HTTP)) - types_only
