"""Addresses that a webhook may be sent to: of the outside, resolved once and connected to as resolved."""

import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from backend.errors import GrpoLabError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Unreachable(GrpoLabError):
    """A webhook cannot be delivered, for now or for good."""


class Target(NamedTuple):
    """An address of a webhook, resolved."""

    is_tls: bool
    host: str
    port: int
    path: str
    """With its query."""
    addresses: tuple[str, ...]
    """The IP addresses that are connected to, in this order; the name is not looked up again."""


def resolve(url: str, *, private: bool) -> Target:
    """Look the host up and refuse one with any address of the inside, unless `private` allows them."""
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    if not is_tls and not private:
        raise Unreachable("the webhook's address must begin with https://")
    port = parts.port or (443 if is_tls else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"the webhook's host {host} is not found: {error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not private and any(not is_outside(ipaddress.ip_address(one)) for one in addresses):
        raise Unreachable(
            f"the webhook's host {host} has an address of the inside ({', '.join(addresses)}); "
            "GRPOLAB_WEBHOOK_PRIVATE=true allows it"
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(is_tls, host, port, path, tuple(addresses))


def is_outside(address: Address) -> bool:
    """Whether an address is one of the public internet, also behind the ways to write IPv4 as IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_outside(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)
