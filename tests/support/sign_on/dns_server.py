"""A DNS server on loopback that knows the TXT records a test gives it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset


@contextmanager
def a_dns_server() -> Iterator[dict[str, list[str]]]:
    """Yield its records, by name; while it runs everybody in this process asks it."""
    records: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.05)
        is_over = threading.Event()
        thread = threading.Thread(target=_serve, args=[server, records, is_over])
        thread.start()
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], server.getsockname()[1]
        before, dns.resolver.default_resolver = dns.resolver.default_resolver, resolver
        try:
            yield records
        finally:
            dns.resolver.default_resolver = before
            is_over.set()
            thread.join()


def _serve(server: socket.socket, records: dict[str, list[str]], is_over: threading.Event) -> None:
    while not is_over.is_set():
        try:
            wire, client = server.recvfrom(4096)
        except TimeoutError:
            continue
        question = dns.message.from_wire(wire)
        answer = dns.message.make_response(question)
        answer.flags |= dns.flags.RA
        name = question.question[0].name
        texts = records.get(name.to_text(omit_final_dot=True), [])
        if texts:
            quoted = [f'"{text}"' for text in texts]
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *quoted))
        else:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        server.sendto(answer.to_wire(), client)
