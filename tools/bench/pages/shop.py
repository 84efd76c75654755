"""The jobs of a shop, the same for every queue, one JSON object a line.

Phase 1 is yesterday's work and phase 2 today's, of which some fails. Phase 3 waits or runs for long.
"""

import hashlib
import json

CUSTOMERS = ["northwind", "fabrikam", "contoso", "tailspin", "adatum", "litware"]
ARTICLES = ["TENT-2", "LANTERN", "STOVE", "ROPE-30", "BOOT-42"]
LONG_MS = 36_000_000


def scattered(number, of=""):
    return int(hashlib.sha256(f"{of}{number}".encode()).hexdigest()[:12], 16)


def order(number, **more):
    customer = CUSTOMERS[scattered(number, "customer") % 6]
    return {"order": number, "customer": customer, "email": f"mail{number}@{customer}.example",
            "cents": 500 + scattered(number, "price") % 90_000, "article": ARTICLES[scattered(number) % 5],
            "quantity": 1 + scattered(number, "quantity") % 5, "card": "good", **more}


def jobs():
    for phase, first, mails, pictures in ((1, 1000, 2000, 300), (2, 5000, 2600, 100)):
        for handler, count in (("send-mail", mails), ("charge-card", 1000), ("book-stock", 500)):
            yield from ((phase, handler, order(first + n)) for n in range(count))
        yield from ((phase, "resize-image", order(first + n, ms=0)) for n in range(pictures))
    yield from ((2, "charge-card", order(n, card="declined")) for n in range(9001, 9241))
    yield from ((2, "charge-card", order(n, card="silent")) for n in range(9301, 9361))
    yield from ((2, "send-mail", order(n, email=f"mail{n}@exmaple.test")) for n in range(9061, 9181))
    yield from ((2, "book-stock", order(n, quantity=60)) for n in range(9401, 9421))
    yield from ((3, "resize-image", order(10_000 + n, customer="northwind", ms=LONG_MS)) for n in range(800))
    others = ((n, CUSTOMERS[1 + n % 5]) for n in range(100))
    yield from ((3, "resize-image", order(10_800 + n, customer=of, ms=LONG_MS)) for n, of in others)
    yield from ((3, "remind-cart", order(11_000 + n)) for n in range(400))
    yield from ((3, "send-mail", order(12_000 + n, delay_s=129_600)) for n in range(200))
    yield from ((3, "import-catalogue", {"catalogue": f"catalogue-{n}", "ms": LONG_MS}) for n in range(8))


def outcome(handler, value):
    """The error of a job, or its result."""
    charge = f"ch_{scattered(value.get('order'), 'charge'):012x}"
    if handler == "charge-card" and value["card"] == "declined":
        return f"the card of order {value['order']} was declined: insufficient funds ({charge})", None
    if handler == "charge-card" and value["card"] == "silent":
        return f"no answer from payments.example:443 within {30_000 + value['order'] % 97} ms", None
    if handler == "send-mail" and value["email"].endswith("@exmaple.test"):
        return f"550 5.1.2 no mail server is known for \"{value['email']}\"", None
    if handler == "book-stock" and value["quantity"] > 50:
        return f"order {value['order']} takes 60 of {value['article']}, of which 50 are left", None
    return None, {"charge": charge, "cents": value["cents"]} if handler == "charge-card" else {"ok": True}


if __name__ == "__main__":
    for phase, handler, value in jobs():
        error, result = outcome(handler, value)
        print(json.dumps({"phase": phase, "handler": handler, "value": value, "error": error, "result": result}))
