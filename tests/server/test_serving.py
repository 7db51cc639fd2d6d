"""`ackwise serve` as a process: how it starts, what it is told, and how it ends without losing anything."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ackwise import errors
from ackwise.clock import ManualClock, SystemClock
from ackwise.connect import connect
from ackwise.core.validation import MICROS
from ackwise.server.ports import bind_ports
from ackwise.server.settings import Settings
from tests.data.before_18.contents import unpack
from tests.patience import PATIENCE
from tests.pg import FACTORIES
from tests.server.process import ServerProcess, clean_env, command
from tests.server.wire import Wire, request

WORKERS = 4


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/served.db"


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def store_url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    return sqlite_url if request.param == "sqlite" else request.getfixturevalue(request.param)()


@contextlib.contextmanager
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as made:
        yield made


def push(http: httpx2.Client, queue: str, *payloads: Any) -> httpx2.Response:
    items = [{"queue": queue, "payload": payload, "transactionId": f"tx-{payload}"} for payload in payloads]
    return http.post("/api/v1/push", json={"items": items})


def pop(http: httpx2.Client, queue: str, **query: Any) -> list[dict[str, Any]]:
    answer = http.get(f"/api/v1/pop/queue/{queue}", params=query)
    found: list[dict[str, Any]] = answer.json()["messages"] if answer.status_code == 200 else []
    return found


def ack(http: httpx2.Client, message: dict[str, Any]) -> Any:
    body = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
    return http.post("/api/v1/ack", json=body).json()


def refused(*arguments: str, **env: str) -> tuple[int, str]:
    """How a server ends that does not start, and what it says."""
    run = subprocess.run(
        command(*arguments), env=clean_env(env), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.stdout == ""
    return run.returncode, run.stderr


def test_server_prints_its_url_and_ends_with_0(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url) as server:
        assert server.url == f"http://127.0.0.1:{server.port}"
        with client(server) as http:
            assert http.get("/health").json()["status"] == "healthy"
            assert http.get("/livez").status_code == 200
            assert http.get("/readyz").status_code == 200


@pytest.mark.parametrize("flag", ["--port", "--pushpop-port", "--amps-port"])
def test_port_that_is_taken_creates_no_store(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused("--store", f"sqlite:///{tmp_path}/new.db", "--port", "0", flag, str(port))
    assert (code, said) == (1, f"ackwise: cannot listen on 127.0.0.1 port {port}: Address already in use\n")
    assert list(tmp_path.iterdir()) == []


def test_port_that_is_taken_migrates_no_store(tmp_path: Path) -> None:
    store = unpack("store", tmp_path) / "store.db"
    before = store.read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _ = refused("--store", f"sqlite:///{store}", "--port", str(taken.getsockname()[1]))
    assert (code, store.read_bytes()) == (1, before)


def test_port_that_another_server_takes_first_is_an_error() -> None:
    with contextlib.closing(bind_ports(Settings(port=0))) as first:
        port = first.http.getsockname()[1]
        with contextlib.closing(bind_ports(Settings(port=port))) as late:
            first.listen()
            with pytest.raises(errors.AckwiseError, match=f"cannot listen on 127.0.0.1 port {port}: "):
                late.listen()


def test_ports_that_cannot_all_be_bound_are_freed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(errors.AckwiseError, match="cannot listen"):
        bind_ports(Settings(port=port, amps_port=taken.getsockname()[1]))
    socket.create_server(("127.0.0.1", port)).close()


def test_store_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    code, said = refused("--store", f"sqlite:///{tmp_path}/no/such/folder/q.db", "--port", "0")
    assert code == 1
    assert "Traceback" not in said


def test_public_address_needs_a_word(sqlite_url: str) -> None:
    code, said = refused("--store", sqlite_url, "--host", "0.0.0.0", "--port", "0")
    assert code == 2
    assert "--insecure" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "[2001:db8::1]", "example.org", ""])
def test_public_host_without_insecure_is_refused(host: str) -> None:
    with pytest.raises(errors.BadInput, match="--insecure"):
        Settings(host=host).check()
    assert Settings(host=host, insecure=True).check().host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_host_needs_no_insecure(host: str) -> None:
    assert Settings(host=host).check().host == host


def test_public_address_is_served_if_that_is_meant(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url, "--host", "0.0.0.0", "--insecure") as server:
        assert httpx2.get(f"http://127.0.0.1:{server.port}/livez").status_code == 200


@pytest.mark.parametrize(
    "arguments",
    [("--port", "70000"), ("--max-body", "many"), ("--queen-defaults", "other"), ("--store", "mysql://x")],
    ids=" ".join,
)
def test_wrong_setting_is_a_usage_error(sqlite_url: str, arguments: tuple[str, ...]) -> None:
    code, said = refused("--store", sqlite_url, "--port", "0", *arguments)
    assert code == 2
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [("[serve]\nmax_bodies = 1", "max_bodies"), ("[sevre]", "sevre"), ("[serve", "settings.toml")],
)
def test_wrong_settings_file_is_a_usage_error(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    code, told = refused("--port", "0", ACKWISE_CONFIG=str(file))
    assert (code, said in told, "Traceback" in told) == (2, True, False)


@pytest.mark.parametrize(("flag", "variable", "limit"), [("3000", "2000", 3000), ("", "2000", 2000), ("", "", 1000)])
def test_flag_goes_before_a_variable_and_that_before_the_file(
    sqlite_url: str, tmp_path: Path, flag: str, variable: str, limit: int
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[serve]\nmax-body = "1000"\n')
    env = {"ACKWISE_CONFIG": str(file)} | ({"ACKWISE_MAX_BODY": variable} if variable else {})
    with ServerProcess(sqlite_url, *(["--max-body", flag] if flag else []), env=env) as server, client(server) as http:
        assert http.post("/api/v1/push", content=b" " * limit).status_code == 400
        assert http.post("/api/v1/push", content=b" " * (limit + 1)).status_code == 413


def test_store_may_come_from_the_environment(sqlite_url: str, tmp_path: Path) -> None:
    with ServerProcess("", env={"ACKWISE_STORE": sqlite_url}) as server, client(server) as http:
        assert push(http, "q", 1).status_code == 201
    assert (tmp_path / "served.db").exists()


# the end


def poll(server: ServerProcess, queue: str) -> Wire:
    """A long poll that is on its way."""
    wire = Wire(server.address)
    wire.ask("GET", f"/api/v1/pop/queue/{queue}?wait=true&timeout=120000")
    return wire


def settled_in(server: ServerProcess) -> None:
    """The server has read what was sent to it before."""
    with client(server) as http:
        for _ in range(3):
            http.get("/health")


def test_sigterm_answers_every_poll_that_waits(store_url: str) -> None:
    with ServerProcess(store_url) as server:
        with client(server) as http:
            push(http, "other", 1)
        polls = [poll(server, "empty") for _ in range(30)]
        settled_in(server)
        server.terminate()
        answers = [wire.reply() for wire in polls]
        assert [answer.status for answer in answers if answer is not None] == [204] * 30
        assert all(wire.closed() for wire in polls)
        assert server.wait() == 0
        for wire in polls:
            wire.close()
    with ServerProcess(store_url) as server, client(server) as http:
        assert [message["data"] for message in pop(http, "other")] == [1]


def test_sigterm_during_polls_and_pushes_loses_nothing(store_url: str) -> None:
    pushed: list[int] = []
    got: list[int] = []
    with ServerProcess(store_url) as server:
        with client(server) as http:
            push(http, "q", -1)
            got += [message["data"] for message in pop(http, "q")]
        enough = threading.Event()

        def produce(worker: int) -> None:
            with client(server) as http, contextlib.suppress(httpx2.TransportError):
                for n in range(10_000):
                    number = worker * 10_000 + n
                    items = [{"queue": "q", "partition": f"p{worker}-{n % 7}", "payload": number}]
                    if http.post("/api/v1/push", json={"items": items}).status_code != 201:
                        return
                    pushed.append(number)
                    if len(pushed) > 100:
                        enough.set()

        def consume(_: int) -> None:
            with client(server) as http, contextlib.suppress(httpx2.TransportError):
                while True:
                    answer = http.get("/api/v1/pop/queue/q", params={"wait": "true", "autoAck": "true", "batch": 5})
                    if answer.status_code != 200:
                        return
                    got.extend(message["data"] for message in answer.json()["messages"])

        with ThreadPoolExecutor(2 * WORKERS) as pool:
            work = [pool.submit(one, n) for n in range(WORKERS) for one in (produce, consume)]
            assert enough.wait(60)
            server.terminate()
            for one in work:
                one.result()
        assert server.wait() == 0
    left = []
    with ServerProcess(store_url) as server, client(server) as http:
        while found := pop(http, "q", batch=1000, partitions=64, autoAck="true"):
            left += [message["data"] for message in found]
    assert len(set(got)) == len(got)
    assert set(got) & set(left) == set()
    assert set(pushed) <= set(got) | set(left)


def dawdle(server: ServerProcess) -> Wire:
    """A request whose body does not come to an end."""
    wire = Wire(server.address)
    wire.send(request("POST", "/api/v1/push", None, "content-length: 100") + b"{")
    settled_in(server)
    return wire


def test_client_that_dawdles_does_not_stop_the_end(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url, "--grace", "1") as server, dawdle(server) as wire:
        server.terminate()
        assert server.wait() == 0
        answer = wire.reply()
        assert answer is None or answer.status == 503


def test_second_signal_ends_the_server_at_once(sqlite_url: str) -> None:
    with ServerProcess(sqlite_url, "--grace", "100") as server, dawdle(server) as wire:
        server.terminate()
        with contextlib.suppress(OSError):
            while True:  # the server has taken the first signal when it no longer listens
                Wire(server.address).close()
        server.terminate()
        assert server.wait() == 0
        answer = wire.reply()
        assert answer is None or answer.status == 503


def drained(store_url: str) -> list[Any]:
    """What is left in the store when every lease has run out.

    A database may still be busy with what the server's last breath asked of it: only a lag of nothing is the end.
    """
    tomorrow = ManualClock(SystemClock().now() + 24 * 3600 * MICROS)
    found: list[Any] = []
    with connect(store_url, clock=tomorrow) as queue:
        while not found or any(group.lag for group in queue.stats("q").groups):
            batches = queue.batches("q", max=1000, wait=0, stop_when_empty=True)
            found += [delivery.json() for batch in batches for delivery in batch]
    return found


def hammer(server: ServerProcess, work: Callable[[httpx2.Client, int], bool], end: Callable[[], None]) -> None:
    """Workers call `work` until the server is no longer there; `end` ends it."""

    def worker(number: int) -> None:
        with client(server) as http, contextlib.suppress(httpx2.TransportError):
            while work(http, number):
                pass

    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(worker, number) for number in range(WORKERS)]
        end()
        for one in running:
            one.result()


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_answered_pushes_are_there_after_the_end(store_url: str, how: str) -> None:
    answered: list[str] = []
    enough = threading.Event()

    def work(http: httpx2.Client, number: int) -> bool:
        name = f"{number}-{len(answered)}-{threading.get_ident()}"
        if push(http, "q", name).status_code != 201:
            return False
        answered.append(name)
        if len(answered) > 100:
            enough.set()
        return True

    with ServerProcess(store_url) as server:

        def end() -> None:
            assert enough.wait(60)
            server.terminate() if how == "terminate" else server.process.kill()

        hammer(server, work, end)
        assert server.wait() == (0 if how == "terminate" else -9)
    assert set(answered) <= set(drained(store_url))


def test_answered_acks_hold_after_a_kill(store_url: str) -> None:
    acked: list[int] = []
    enough = threading.Event()
    with ServerProcess(store_url) as server:
        with client(server) as http:
            for partition in range(WORKERS):
                items = [
                    {"queue": "q", "partition": f"p{partition}", "payload": partition * 500 + n} for n in range(500)
                ]
                assert http.post("/api/v1/push", json={"items": items}).status_code == 201

        def work(http: httpx2.Client, _: int) -> bool:
            for message in pop(http, "q"):
                if ack(http, message)["success"]:
                    acked.append(message["data"])
            if len(acked) > 100:
                enough.set()
            return True

        def end() -> None:
            assert enough.wait(60)
            server.process.kill()

        hammer(server, work, end)
        assert server.wait() == -9
    left = drained(store_url)
    assert len(set(acked)) == len(acked)
    assert set(acked) & set(left) == set()
    # An ack that was under way may have been done without being answered.
    assert len(acked) + len(left) in range(WORKERS * 500 - WORKERS, WORKERS * 500 + 1)


# several servers


def test_push_on_one_server_wakes_a_poll_on_another(pg_url: str) -> None:
    with ServerProcess(pg_url) as one, ServerProcess(pg_url) as other, client(one) as http:
        push(http, "q", "first")
        waiting = poll(other, "fresh")
        settled_in(other)
        push(http, "fresh", "hello")
        answer = waiting.reply()
        waiting.close()
        assert answer is not None
        assert [message["data"] for message in answer.json["messages"]] == ["hello"]


def test_servers_respect_each_others_leases(pg_url: str) -> None:
    with (
        ServerProcess(pg_url) as one,
        ServerProcess(pg_url) as other,
        client(one) as first,
        client(other) as second,
    ):
        push(first, "q", "a", "b")
        (message,) = pop(first, "q")
        assert pop(second, "q", batch=5) == []
        assert ack(second, message)["success"] is True
        assert [found["data"] for found in pop(second, "q", batch=5)] == ["b"]
        assert pop(first, "q", batch=5) == []


def test_many_consumers_of_two_servers_get_each_message_once(pg_url: str) -> None:
    with ServerProcess(pg_url) as one, ServerProcess(pg_url) as other:
        with client(one) as http:
            for partition in range(8):
                items = [{"queue": "q", "partition": f"p{partition}", "payload": [partition, n]} for n in range(25)]
                http.post("/api/v1/push", json={"items": items})

        def consume(server: ServerProcess) -> list[tuple[int, int]]:
            seen = []
            with client(server) as http:
                while found := pop(http, "q", batch=3, wait="true", timeout=1000):
                    seen += [tuple(message["data"]) for message in found]
                    assert all(ack(http, message)["success"] for message in found)
            return seen

        with ThreadPoolExecutor(WORKERS) as pool:
            seen = [pair for mine in pool.map(consume, [one, other] * (WORKERS // 2)) for pair in mine]
    assert sorted(seen) == [(partition, n) for partition in range(8) for n in range(25)]
