"""The cost of a run: the time that its attempts used worker slots, in hours and money, and its judges."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.storage.models import Attempt

HOUR_SECONDS = 3600.0


def sum_cost(attempts: Iterable[Attempt], now: float) -> dict[str, Any]:
    """Return the hours of worker slots and GPUs and the money by currency, as `schemas.Cost` describes.

    An attempt counts from its claim to its end, including loading and checkpoints. An unfinished attempt
    counts up to `now`, in seconds of the database's clock. Slots cost money if their worker had a price
    (SLOT_PRICE), and so do the tokens of judges and reward models that had one, including those of steps that
    a later attempt repeated.
    """
    slot_hours = gpu_hours = 0.0
    money: dict[str, float] = {}
    judges: dict[str, float] = {}
    for attempt in attempts:
        ended_at = now if attempt.ended_at is None else attempt.ended_at
        is_gpu = attempt.device.startswith("cuda")
        # All processes on a CPU share one slot.
        slots = (attempt.nodes or 1) * ((attempt.devices or 1) if is_gpu else 1)
        hours = max(0.0, ended_at - attempt.started_at) / HOUR_SECONDS * slots
        slot_hours += hours
        gpu_hours += hours if is_gpu else 0.0
        if not attempt.currency:
            continue
        if attempt.slot_price is not None:
            money[attempt.currency] = money.get(attempt.currency, 0.0) + hours * attempt.slot_price
        if attempt.judge_cost is not None:
            judges[attempt.currency] = judges.get(attempt.currency, 0.0) + attempt.judge_cost
    for currency, amount in judges.items():
        money[currency] = money.get(currency, 0.0) + amount
    return {"slot_hours": slot_hours, "gpu_hours": gpu_hours, "money": money, "judges": judges}


def add_costs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum of two costs: slot hours, and money by currency; an empty cost counts as zero."""
    money: dict[str, float] = {}
    for cost in (first, second):
        for currency, amount in cost.get("money", {}).items():
            money[currency] = money.get(currency, 0.0) + amount
    return {"slot_hours": first.get("slot_hours", 0.0) + second.get("slot_hours", 0.0), "money": money}


class Price(NamedTuple):
    """The price of a worker slot."""

    per_hour: float
    currency: str


def newest_price(session: Session) -> Price | None:
    """Return the price of the newest attempt whose slot had one, or None."""
    query = select(Attempt.slot_price, Attempt.currency).where(
        Attempt.slot_price.is_not(None), Attempt.currency != ""
    )
    newest = session.execute(query.order_by(Attempt.started_at.desc()).limit(1)).first()
    return None if newest is None else Price(float(newest.slot_price or 0), str(newest.currency))
