"""PyFlink's ``pyflink.datastream.async_retry_strategies``."""

from pyflinkstate.api import (
    NO_RETRY_STRATEGY as NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy as ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy as FixedDelayRetryStrategy,
    NoRetryStrategy as NoRetryStrategy,
    RetryPredicate as RetryPredicate,
)
