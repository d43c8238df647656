"""Keys, label requests and errors on the routes of the proxy."""

from pathlib import Path

import openai
import pytest

from examples.proxy_upstreams import Upstream
from stopwise.service.http.keys import add_key
from tests.proxy.proxy_harness import MESSAGES, running_proxy, stages


def test_keys_of_the_service_protect_the_chat_route(models: list[Upstream], tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    keys = {scope: add_key(file, scope, [scope])[1] for scope in ("decide", "observe")}
    other = add_key(file, "other", ["decide"], cascades=["other"])[1]
    with running_proxy(tmp_path, stages(models), service_keys=str(file)) as proxy:

        def ask(key: str) -> str | None:
            with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=key, max_retries=0) as client:
                answer = client.chat.completions.create(model="tickets", messages=MESSAGES)
                return answer.choices[0].message.content

        assert ask(keys["decide"]) == "billing"
        with pytest.raises(openai.AuthenticationError):
            ask("not a key")
        with pytest.raises(openai.PermissionDeniedError, match="scope 'decide'"):
            ask(keys["observe"])
        with pytest.raises(openai.PermissionDeniedError, match="restricted to these cascades"):
            ask(other)
        assert all("authorization" not in str(body).lower() for body in models[2].bodies[-1:])


def test_a_policy_with_labels_requests_them(models: list[Upstream], tmp_path: Path) -> None:
    compare = "choice:account|billing|outage"
    with running_proxy(tmp_path, stages(models), mode="on", labels=50, compare=compare) as proxy:
        ticket = "hey this is not about invoice but about login thanks"  # the stages disagree
        answer = proxy.chat({"messages": [{"role": "user", "content": ticket}]})
        name = answer.headers["x-stopwise-round"]
        wanted = proxy.get("/v1/cascades/tickets/label-requests").json()["rounds"]
        assert [request["id"] for request in wanted] == [name]
        place = f"/v1/cascades/tickets/rounds/{name}/label"
        assert proxy.post(place, {"label": "account"}).json()["labelled"] == 1


def test_other_routes_have_errors_of_the_service(models: list[Upstream], tmp_path: Path) -> None:
    with running_proxy(tmp_path, stages(models)) as proxy:
        assert set(proxy.get("/v1/nothing").json()["error"]) == {"code", "message"}


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"messages": 3}'])
def test_invalid_chat_requests_have_errors_of_openai(
    models: list[Upstream], tmp_path: Path, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    with running_proxy(tmp_path, stages(models)) as proxy:
        answer = proxy.ask("POST", "/v1/chat/completions", headers=headers, content=body)
        assert answer.status_code == 400
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
