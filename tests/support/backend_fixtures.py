"""Fixtures of the backend tests; how Hypothesis runs."""

import backend_support
import contract_backends
import pytest
from hypothesis import settings
from tiers import cases

from pyflinkstate import Types

# No deadline: a test never depends on how fast the machine is.
settings.register_profile("pyflinkstate", deadline=None, print_blob=True)
settings.load_profile("pyflinkstate")


@pytest.fixture
def backend():
    """A backend that owns all 128 key groups, bound to the key ``"k"``."""
    made = backend_support.make_backend()
    made.set_current_key("k")
    return made


@pytest.fixture(params=["typed", "untyped"])
def declared(request):
    """Gives a type as it is declared, or what stands for it when it is left out."""
    if request.param == "typed":
        return lambda type_info: type_info
    return lambda type_info: Types.PICKLED_BYTE_ARRAY()


@pytest.fixture(params=cases(contract_backends.EVERYWHERE, contract_backends.QUICK))
def everywhere(request):
    """Keyed state: copy-on-write, plain, both with snapshots open, and inside an operator."""
    with contract_backends.opened(request.param) as contract:
        yield contract


@pytest.fixture(params=cases(contract_backends.BARE, contract_backends.QUICK))
def bare(request):
    """As ``everywhere``, without the operator."""
    with contract_backends.opened(request.param) as contract:
        yield contract
