"""A client of wakeq's HTTP API, and the verification of its deliveries.

    from wakeq import Client

    client = Client("https://queue.example", key)
    emitted = client.emit({"name": "greet", "value": "Ada"})
"""

from ._client import Client
from ._errors import ApiError, TransportError, WakeqError
from ._filters import (
    CountFilter,
    DeadFilter,
    EndedCountFilter,
    EndedFilter,
    ErrorGroupFilter,
    EventFilter,
    HaltedFilter,
    Paging,
    TargetFilter,
)
from ._verify import Delivery, SignatureError, verify
from ._worker import Context, DeadError, RetryError, Worker

__all__ = [
    "ApiError",
    "Client",
    "Context",
    "CountFilter",
    "DeadError",
    "DeadFilter",
    "Delivery",
    "EndedCountFilter",
    "EndedFilter",
    "ErrorGroupFilter",
    "EventFilter",
    "HaltedFilter",
    "Paging",
    "RetryError",
    "SignatureError",
    "TargetFilter",
    "TransportError",
    "WakeqError",
    "Worker",
    "verify",
]
