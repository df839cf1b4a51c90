"""What a plug-in stores: event logs, and the formats of their records.

    record = with_uid(secrets.token_hex(8), Greeting("hello"))  # a msgspec struct
    stored = await event_logs.create("greetings", name, record)
    uid, greeting = split_uid(stored, Greeting)
    log = await event_logs.read("greetings", name, uid=uid, position=0, count=100)
    outcome = await event_logs.append("greetings", name, uid=uid, position=len(log.events), event=b"...")

``EventLogs`` are among what routes get: ``RouteDependencies.event_logs``. Each is a record that never
changes, a list of events, and a snapshot of what they come to. One script appends an event if the log has as
many as its caller knows of; who was overtaken reads the others' events and tries again. So several processes
change one thing without a lock, and a crash at any point loses nothing that was acknowledged. From 95 %
of what the store may take on (SHORTLIST_MAX_STORE_MB) they take no more; they are copied with the store.
"""

from app.records.records import differing, pack, split_uid, unpack, with_uid
from app.storage.event_logs import EventLogs
from app.storage.registry import WriteOnce
from app.storage.store import Store
from app.storage.types import ArmWrite, Position, StoredEventLog

__all__ = [
    "ArmWrite",
    "EventLogs",
    "Position",
    "Store",
    "StoredEventLog",
    "WriteOnce",
    "differing",
    "pack",
    "split_uid",
    "unpack",
    "with_uid",
]
