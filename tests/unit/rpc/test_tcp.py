"""Calls over real sockets, on asyncio's loop and on uvloop: sharing, loss, strangers, limits, TLS, threads."""

import asyncio
import threading

import pytest

from headrace.core.clock import SystemClock
from headrace.core.config import ConfigOption
from headrace.core.errors import PortInUseError, RemoteError
from headrace.core.security.tls import (
    generate_identity,
)
from headrace.core.threads import start_thread
from headrace.rpc.errors import (
    AskTimeoutError,
    EndpointNotStartedError,
    FencingTokenError,
    OversizeReplyError,
    OversizeRequestError,
    RecipientUnreachableError,
    RpcConnectionError,
    RpcHandshakeError,
)
from headrace.rpc.options import TASK_MANAGER_RPC_PORT
from headrace.rpc.proxies import with_timeout
from headrace.rpc.tcp import TcpRpcService
from tests.unit.rpc.sample_endpoints import (
    ENTRY,
    TOKEN,
    Added,
    FencedLedger,
    Ledger,
    LedgerGateway,
    UnofferedGateway,
)
from tests.unit.rpc.tcp_services import Run, ledger_and_gateway, make_service, started

pytestmark = pytest.mark.integration


def test_the_same_calls_have_the_same_results_over_tcp(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledger, gateway = await ledger_and_gateway(callee, caller)
            assert ledger.address.startswith("headrace.tcp://127.0.0.1:")
            assert await gateway.add(ENTRY) == Added(ENTRY)
            for number in range(200):
                gateway.note(str(number))
            assert await gateway.count() == 200
            assert ledger.notes == [str(number) for number in range(200)]
            assert await gateway.echo(bytes(200_000)) == bytes(200_000)
            with pytest.raises(RemoteError, match="LookupError: no such thing: x"):
                await gateway.fail("x")
            with pytest.raises(AskTimeoutError, match=r"LedgerGateway\.hold"):
                await with_timeout(gateway, 1).hold("x")
            with pytest.raises(RpcHandshakeError, match="UnofferedGateway"):
                await caller.connect(ledger.address, UnofferedGateway)
            with pytest.raises(RpcConnectionError, match="no such endpoint"):
                await caller.connect(ledger.address + "x", LedgerGateway)
            idle = Ledger(callee, "idle")
            with pytest.raises(EndpointNotStartedError):
                await (await caller.connect(idle.address, LedgerGateway)).count()
            fenced = FencedLedger(callee, "fenced")
            fenced.start()
            assert await (await caller.connect(fenced.address, LedgerGateway, TOKEN)).count() == 0
            with pytest.raises(FencingTokenError):
                await (await caller.connect(fenced.address, LedgerGateway)).count()

    run(scenario())


def test_all_gateways_to_one_process_share_one_connection(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledgers = [Ledger(callee, f"ledger_{number}") for number in range(5)]
            for ledger in ledgers:
                ledger.start()
            gateways = await asyncio.gather(
                *(caller.connect(ledger.address, LedgerGateway) for ledger in ledgers)
            )
            await asyncio.gather(*(gateway.count() for gateway in gateways * 20))
            assert len(callee.accepted_connections) == 1
            assert caller.accepted_connections == ()

    run(scenario())


def test_calls_made_while_the_connection_is_opened_keep_their_order(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledger = Ledger(callee)
            ledger.start()
            gateway = caller.gateway(ledger.address, LedgerGateway)
            for number in range(50):
                gateway.note(str(number))
            assert await gateway.count() == 50
            assert ledger.notes == [str(number) for number in range(50)]

    run(scenario())


def test_a_lost_connection_fails_all_asks_at_once_and_the_next_call_dials_again(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledger, gateway = await ledger_and_gateway(callee, caller)
            asks = [asyncio.ensure_future(gateway.hold(str(n))) for n in range(5)]
            while len(ledger.begun) < 5:
                await asyncio.sleep(0)
            for connection in callee.accepted_connections:
                connection.fail(OSError("the cable was pulled"))
            for ask in asks:
                with pytest.raises(RecipientUnreachableError, match=r"LedgerGateway\.hold"):
                    await ask
            assert await gateway.count() == 0

    run(scenario())


def test_a_process_that_is_gone_is_unreachable_at_once_and_found_again_when_back(run: Run) -> None:
    async def scenario() -> None:
        caller, first = make_service(), make_service()
        async with started(caller):
            await first.start()
            _, gateway = await ledger_and_gateway(first, caller)
            port = first.address.rpartition(":")[2]
            await first.stop()
            with pytest.raises(RecipientUnreachableError):
                await gateway.count()
            with pytest.raises(RecipientUnreachableError, match="refused"):
                await gateway.count()
            async with started(second := make_service({"taskmanager.rpc.port": port})):
                Ledger(second).start()
                assert await gateway.count() == 0

    run(scenario())


def test_the_smaller_frame_size_of_two_sides_holds(run: Run) -> None:
    async def scenario() -> None:
        small = make_service({"pekko.framesize": "1kb"})
        async with started(small, large := make_service()):
            _, to_small = await ledger_and_gateway(small, large)
            _, to_large = await ledger_and_gateway(large, small)
            with pytest.raises(OversizeRequestError, match="1024") as caught:
                await to_small.echo(bytes(2000))
            assert "echo" in caught.value.method

            class Verbose(Ledger):
                async def echo(self, data: bytes) -> bytes:
                    return data * 2000

            verbose = Verbose(large, "verbose")
            verbose.start()
            gateway = await small.connect(verbose.address, LedgerGateway)
            with pytest.raises(OversizeReplyError, match="1024"):
                await gateway.echo(b"x")
            assert await to_large.count() == await to_small.count() == 0

    run(scenario())


def test_a_peer_that_does_not_read_loses_the_connection(run: Run) -> None:
    async def scenario() -> None:
        caller = make_service({"headrace.rpc.send-buffer-size": "1mb"})
        async with started(callee := make_service(), caller):
            ledger, gateway = await ledger_and_gateway(callee, caller)
            for connection in callee.accepted_connections:
                connection.pause_reading()
            asks = [asyncio.ensure_future(gateway.echo(bytes(200_000))) for _ in range(100)]
            results = await asyncio.gather(*asks, return_exceptions=True)
            assert all(isinstance(result, RecipientUnreachableError) for result in results)
            assert "does not read" in str(results[0])
            assert ledger.queue_length == 0

    run(scenario())


def test_what_waits_for_a_connection_is_bounded(run: Run) -> None:
    async def scenario() -> None:
        caller = make_service({"headrace.rpc.send-buffer-size": "300kb"})
        async with started(callee := make_service(), caller):
            ledger = Ledger(callee)
            ledger.start()
            gateway = caller.gateway(ledger.address, LedgerGateway)
            asks = [asyncio.ensure_future(gateway.echo(bytes(200_000))) for _ in range(2)]
            for ask in asks:
                with pytest.raises(RecipientUnreachableError, match="wait for a connection"):
                    await ask
            assert await gateway.count() == 0

    run(scenario())


def test_with_certificates_everything_is_encrypted(run: Run) -> None:
    async def scenario() -> None:
        identity = generate_identity(SystemClock().now_ms())
        callee, caller = make_service(tls=identity), make_service(tls=identity)
        async with started(callee, caller, plain := make_service()):
            ledger, gateway = await ledger_and_gateway(callee, caller)
            assert await gateway.echo(bytes(100_000)) == bytes(100_000)
            with pytest.raises(RpcConnectionError):
                await plain.connect(ledger.address, LedgerGateway)

    run(scenario())


def test_a_process_with_the_secret_and_another_cluster_s_certificate_is_refused(run: Run) -> None:
    async def scenario() -> None:
        ours, theirs = (generate_identity(SystemClock().now_ms()) for _ in range(2))
        callee, caller = make_service(tls=ours), make_service(tls=ours)
        async with started(callee, caller, stranger := make_service(tls=theirs)):
            ledger, gateway = await ledger_and_gateway(callee, caller)
            assert await gateway.echo(b"x") == b"x"
            with pytest.raises(RpcConnectionError):
                await stranger.connect(ledger.address, LedgerGateway)

    run(scenario())


def test_a_port_in_use_is_named_with_its_option(run: Run) -> None:
    async def scenario() -> None:
        async with started(first := make_service()):
            port = first.address.rpartition(":")[2]
            with pytest.raises(PortInUseError, match=rf"port {port} .*taskmanager\.rpc\.port"):
                await make_service({"taskmanager.rpc.port": port}).start()
            spare = f"{port},0"
            async with started(second := make_service({"taskmanager.rpc.port": spare})):
                assert second.address != first.address

    run(scenario())


def test_other_threads_may_tell_and_post_actions(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledger, gateway = await ledger_and_gateway(callee, caller)
            near = ledger.self_gateway(LedgerGateway)
            main_threads: list[int] = []
            done = threading.Event()

            def act() -> None:
                for number in range(100):
                    near.note(f"near {number}")
                    gateway.note(f"far {number}")
                    ledger.run_async(lambda: main_threads.append(threading.get_ident()))
                ledger.call_async(ledger.count).result(10)
                asyncio.run_coroutine_threadsafe(gateway.count(), caller.loop).result(10)
                ledger.schedule_run_async(0, done.set)

            start_thread("actor", act)
            while not done.is_set():
                await asyncio.sleep(0)
            for kind in ("near", "far"):
                of_kind = [note for note in ledger.notes if note.startswith(kind)]
                assert of_kind == [f"{kind} {number}" for number in range(100)]
            assert set(main_threads) == {threading.get_ident()}

    run(scenario())


def test_another_thread_cancels_what_is_due_while_the_main_thread_is_busy(run: Run) -> None:
    async def scenario() -> None:
        async with started(callee := make_service(), caller := make_service()):
            ledger, _ = await ledger_and_gateway(callee, caller)
            ran: list[str] = []
            busy, go, done = threading.Event(), threading.Event(), threading.Event()

            def occupy() -> None:
                busy.set()
                go.wait(10)

            def act() -> None:
                ledger.run_async(occupy)
                busy.wait(10)
                ledger.schedule_run_async(0, lambda: ran.append("cancelled")).cancel()
                ledger.schedule_run_async(0, lambda: ran.append("kept"))
                ledger.schedule_run_async(1, done.set)
                go.set()

            start_thread("actor", act)
            while not done.is_set():
                await asyncio.sleep(0)
            assert ran == ["kept"]

    run(scenario())


def test_a_service_works_on_a_loop_in_a_background_thread(run: Run) -> None:
    del run  # the loop here is asyncio's own, driven by a thread
    loop = asyncio.new_event_loop()
    thread = start_thread("control", loop.run_forever)

    async def scenario() -> tuple[TcpRpcService, LedgerGateway]:
        service = make_service()
        await service.start()
        ledger = Ledger(service)
        ledger.start()
        return service, await service.connect(ledger.address, LedgerGateway)

    service, gateway = asyncio.run_coroutine_threadsafe(scenario(), loop).result(10)
    assert asyncio.run_coroutine_threadsafe(gateway.add(ENTRY), loop).result(10) == Added(ENTRY)
    asyncio.run_coroutine_threadsafe(service.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_the_default_port_is_any_free_one() -> None:
    option: ConfigOption[str] = TASK_MANAGER_RPC_PORT
    assert option.default == "0"
