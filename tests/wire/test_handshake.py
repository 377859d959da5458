"""The handshake as bytes: who gets keys, and who gets nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given, strategies as st

from pyflinkstate.errors import UntrustedConnectionError
from pyflinkstate.runtime.wire.handshake import (
    CLIENT_HELLO_BYTES,
    PROOF_BYTES,
    SERVER_HELLO_BYTES,
    ClientHandshake,
    HandshakeLimits,
    ServerHandshake,
    Strangers,
    binding_of,
)

SECRET = b"s" * 32
SLOT = binding_of("slot", "count-1[0] of attempt 0", "10.0.0.7 4000 None", "tcp")
OTHERS = {
    "purpose": binding_of("control", "count-1[0] of attempt 0", "10.0.0.7 4000 None", "tcp"),
    "name": binding_of("slot", "count-1[0] of attempt 1", "10.0.0.7 4000 None", "tcp"),
    "address": binding_of("slot", "count-1[0] of attempt 0", "10.0.0.8 4000 None", "tcp"),
    "path": binding_of("slot", "count-1[0] of attempt 0", "10.0.0.7 4000 None", "unix"),
}


def ends(
    client: bytes = SLOT, server: bytes = SLOT, secrets: tuple[bytes, bytes] = (SECRET, SECRET)
) -> tuple[ClientHandshake, ServerHandshake]:
    return ClientHandshake(secrets[0], client), ServerHandshake(secrets[1], server)


def test_two_ends_that_mean_each_other_get_the_same_keys_and_say_neither_them_nor_the_secret() -> None:
    every_key = set()
    for _ in range(20):
        client, server = ends()
        hello = client.hello
        answer = server.answer(hello)
        proof, keys = client.finish(answer)
        assert server.finish(proof) == keys
        assert [len(hello), len(answer), len(proof)] == [CLIENT_HELLO_BYTES, SERVER_HELLO_BYTES, PROOF_BYTES]
        secrets = {keys.to_server, keys.to_client}
        assert not any(secret in hello + answer + proof for secret in (SECRET, *secrets))
        every_key |= secrets
    assert len(every_key) == 40, "each connection has keys of its own"
    assert max(CLIENT_HELLO_BYTES, SERVER_HELLO_BYTES, PROOF_BYTES) < 200


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_server_answers_nobody_who_means_another(other: bytes) -> None:
    for client, server in (ends(client=other), ends(server=other)):
        with pytest.raises(UntrustedConnectionError, match="meant another server"):
            server.answer(client.hello)


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_relay_that_rewrites_the_binding_gets_no_proof_that_its_client_takes(other: bytes) -> None:
    client, server = ends(client=other)
    hello = bytearray(client.hello)
    hello[6:38] = SLOT
    with pytest.raises(UntrustedConnectionError, match="is not the expected one"):
        client.finish(server.answer(bytes(hello)))


def test_who_does_not_know_the_secret_is_found_by_either_side() -> None:
    client, server = ends(secrets=(SECRET, b"wrong"))
    with pytest.raises(UntrustedConnectionError, match="does not know the job's secret"):
        client.finish(server.answer(client.hello))
    client, server = ends(secrets=(b"wrong", SECRET))
    with pytest.raises(UntrustedConnectionError, match="does not know the job's secret"):
        server.answer(client.hello)


def test_a_recorded_hello_is_worth_nothing_without_the_secret() -> None:
    client, server = ends()
    server.answer(client.hello)
    for guess in (bytes(PROOF_BYTES), os.urandom(PROOF_BYTES)):
        with pytest.raises(UntrustedConnectionError, match="does not know the job's secret"):
            server.finish(guess)


def test_a_client_is_not_fooled_by_its_own_words() -> None:
    client, _ = ends()
    with pytest.raises(UntrustedConnectionError, match="another protocol"):
        client.finish(client.hello)
    masked = b"PFSS" + client.hello[4:]
    with pytest.raises(UntrustedConnectionError, match="secret"):
        client.finish(masked)


def test_a_server_is_not_fooled_by_its_own_proof() -> None:
    client, server = ends()
    answer = server.answer(client.hello)
    with pytest.raises(UntrustedConnectionError, match="secret"):
        server.finish(answer[-PROOF_BYTES:])


def test_a_handshake_that_is_replayed_meets_another_nonce() -> None:
    client, server = ends()
    hello = client.hello
    answer = server.answer(hello)
    proof, _ = client.finish(answer)
    again = ServerHandshake(SECRET, SLOT)
    again.answer(hello)
    with pytest.raises(UntrustedConnectionError):
        again.finish(proof)
    with pytest.raises(UntrustedConnectionError):
        ClientHandshake(SECRET, SLOT).finish(answer)


def test_another_version_is_told_apart_from_a_stranger() -> None:
    client, server = ends()
    hello = bytearray(client.hello)
    hello[5] = 9
    with pytest.raises(
        UntrustedConnectionError, match="version 9 of the protocol, and this process speaks 2"
    ):
        server.answer(bytes(hello))


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def trust(change: Callable[[int, bytes], bytes]) -> bool:
    """Return whether both ends finish when what they say is changed on the way."""
    client, server = ends()
    try:
        answer = change(1, server.answer(change(0, client.hello)))
        proof, client_keys = client.finish(answer)
        return server.finish(change(2, proof)) == client_keys
    except UntrustedConnectionError:
        return False


@given(st.data())
def test_no_bit_of_any_message_can_be_changed(data: st.DataObject) -> None:
    lengths = [CLIENT_HELLO_BYTES, SERVER_HELLO_BYTES, PROOF_BYTES]
    message = data.draw(st.integers(0, 2))
    bit = data.draw(st.integers(0, lengths[message] * 8 - 1))
    assert trust(lambda number, said: said)
    assert not trust(lambda number, said: flip(said, bit) if number == message else said)


@given(st.lists(st.text(max_size=3), min_size=8, max_size=8))
def test_servers_and_paths_that_differ_have_bindings_that_differ(parts: list[str]) -> None:
    first, second = binding_of(*parts[:4]), binding_of(*parts[4:])
    assert (parts[:4] == parts[4:]) == (first == second)


def test_names_that_run_together_do_not_make_one_binding() -> None:
    made = [binding_of(*parts) for parts in itertools.permutations(["a", "ab", "b", ""])]
    assert len(set(made)) == len(made)


# --- strangers: which unauthenticated connections stay open ------------------------------------------------


@attrs.define
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def strangers(clock: Clock) -> Strangers[int]:
    return Strangers(HandshakeLimits(connections=6, reserve=3, crowd=4, now_s=clock))


def test_any_number_is_accepted_at_once_and_only_the_newest_stay(strangers: Strangers[int]) -> None:
    cut_off = [old for number in range(600) for old in strangers.admit(number)]
    assert cut_off == list(range(594))


def test_strangers_never_cut_off_one_that_has_begun_to_prove_itself(strangers: Strangers[int]) -> None:
    strangers.admit(-1)
    assert strangers.begin(-1) == []
    assert -1 not in [old for number in range(600) for old in strangers.admit(number)]
    strangers.leave(-1)


def test_those_that_have_begun_have_a_bound_of_their_own(strangers: Strangers[int]) -> None:
    for number in range(4):
        strangers.admit(number)
    assert [strangers.begin(number) for number in range(4)] == [[], [], [], [0]]


def test_one_that_was_cut_off_meanwhile_does_not_come_back(strangers: Strangers[int]) -> None:
    for number in range(7):
        strangers.admit(number)
    assert strangers.begin(0) == []
    assert [strangers.begin(number) for number in range(1, 4)] == [[], [], []]


def test_few_have_the_whole_time_and_many_have_less(strangers: Strangers[int], clock: Clock) -> None:
    assert strangers.wait_s() is None
    for number in range(3):
        strangers.admit(number)
    assert strangers.wait_s() == 30.0
    clock.now_s = 2.0
    assert strangers.take_late() == []
    strangers.admit(3)
    assert strangers.is_crowd()
    assert strangers.take_late() == [0, 1, 2]
    assert not strangers.is_crowd()
    assert strangers.wait_s() == 30.0
    clock.now_s = 32.0
    assert strangers.take_late() == [3]
    assert strangers.wait_s() is None


def test_one_that_has_begun_has_the_whole_time_in_a_crowd_too(
    strangers: Strangers[int], clock: Clock
) -> None:
    for number in range(5):
        strangers.admit(number)
    strangers.begin(0)
    assert strangers.wait_s() == 2.0
    clock.now_s = 2.0
    assert strangers.take_late() == [1, 2, 3, 4]
    assert strangers.wait_s() == 28.0
    clock.now_s = 30.0
    assert strangers.take_late() == [0]


def test_one_that_has_left_costs_nothing_any_more(strangers: Strangers[int], clock: Clock) -> None:
    for number in range(6):
        strangers.admit(number)
        strangers.leave(number)
    assert not strangers.is_crowd()
    assert strangers.wait_s() is None
