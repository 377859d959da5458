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
    Binding,
    ClientHandshake,
    ServerHandshake,
)

SECRET = b"s" * 32
SLOT = Binding("slot", "count-1[0] of attempt 0", "10.0.0.7 4000 None", "tcp")
OTHERS = [
    attrs.evolve(SLOT, purpose="control"),
    attrs.evolve(SLOT, server="count-1[0] of attempt 1"),
    attrs.evolve(SLOT, address="10.0.0.8 4000 None"),
    attrs.evolve(SLOT, path="unix"),
]


def ends(
    client: Binding = SLOT, server: Binding = SLOT, secrets: tuple[bytes, bytes] = (SECRET, SECRET)
) -> tuple[ClientHandshake, ServerHandshake]:
    return ClientHandshake(secrets[0], client), ServerHandshake(secrets[1], server)


def test_two_ends_that_mean_each_other_get_the_same_keys_and_say_neither_them_nor_the_secret() -> None:
    every_key = set()
    for _ in range(20):
        client, server = ends()
        hello = client.hello()
        answer = server.answer(hello)
        proof, keys = client.finish(answer)
        assert server.finish(proof) == keys
        assert [len(hello), len(answer), len(proof)] == [CLIENT_HELLO_BYTES, SERVER_HELLO_BYTES, PROOF_BYTES]
        secrets = {keys.to_server, keys.to_client}
        assert not any(secret in hello + answer + proof for secret in (SECRET, *secrets))
        every_key |= secrets
    assert len(every_key) == 40, "each connection has keys of its own"
    assert max(CLIENT_HELLO_BYTES, SERVER_HELLO_BYTES, PROOF_BYTES) < 200


@pytest.mark.parametrize("other", OTHERS)
def test_a_server_answers_nobody_who_means_another(other: Binding) -> None:
    for client, server in (ends(client=other), ends(server=other)):
        with pytest.raises(UntrustedConnectionError, match="meant another server"):
            server.answer(client.hello())


@pytest.mark.parametrize("other", OTHERS)
def test_a_relay_that_rewrites_the_binding_gets_no_proof_that_its_client_takes(other: Binding) -> None:
    client, server = ends(client=other)
    hello = bytearray(client.hello())
    hello[6:38] = SLOT.digest()
    with pytest.raises(UntrustedConnectionError, match="is not the expected one"):
        client.finish(server.answer(bytes(hello)))


def test_who_does_not_know_the_secret_is_found_by_either_side() -> None:
    client, server = ends(secrets=(SECRET, b"wrong"))
    with pytest.raises(UntrustedConnectionError, match="does not know the job's secret"):
        client.finish(server.answer(client.hello()))
    client, server = ends(secrets=(b"wrong", SECRET))
    with pytest.raises(UntrustedConnectionError, match="does not know the job's secret"):
        server.answer(client.hello())


def test_a_recorded_hello_is_worth_nothing_without_the_secret() -> None:
    client, server = ends()
    server.answer(client.hello())
    for guess in (bytes(PROOF_BYTES), os.urandom(PROOF_BYTES)):
        with pytest.raises(UntrustedConnectionError, match="does not know the job's secret"):
            server.finish(guess)


def test_a_client_is_not_fooled_by_its_own_words() -> None:
    client, _ = ends()
    with pytest.raises(UntrustedConnectionError, match="another protocol"):
        client.finish(client.hello())
    masked = b"PFSS" + client.hello()[4:]
    with pytest.raises(UntrustedConnectionError, match="secret"):
        client.finish(masked)


def test_a_server_is_not_fooled_by_its_own_proof() -> None:
    client, server = ends()
    answer = server.answer(client.hello())
    with pytest.raises(UntrustedConnectionError, match="secret"):
        server.finish(answer[-PROOF_BYTES:])


def test_a_handshake_that_is_replayed_meets_another_nonce() -> None:
    client, server = ends()
    hello = client.hello()
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
    hello = bytearray(client.hello())
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
        answer = change(1, server.answer(change(0, client.hello())))
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
def test_bindings_that_differ_have_digests_that_differ(parts: list[str]) -> None:
    first, second = Binding(*parts[:4]), Binding(*parts[4:])
    assert (first == second) == (first.digest() == second.digest())


def test_names_that_run_together_do_not_make_one_binding() -> None:
    made = [Binding(*parts).digest() for parts in itertools.permutations(["a", "ab", "b", ""])]
    assert len(set(made)) == len(made)
