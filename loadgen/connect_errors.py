"""What a failed opening handshake means, and what helps: each fault has a fix of its own."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from urllib.parse import urlsplit

from websockets.exceptions import InvalidStatus, InvalidURI, ProxyError, WebSocketException

from loadgen.errors import CannotConnect, ClientError, refusal

START_IT = "start the service with `hearline up`, or name another with --url"
CHECK_NAME = "check the name in --url (or HEARLINE_URL)"
CHECK_ADDRESS = (
    "check host and port in --url (or HEARLINE_URL), and what is between (a firewall, a network that is down)"
)
NO_TLS = "a service without TLS has a ws:// or http:// URL"
CHECK_PORT = "check port and path in --url (or HEARLINE_URL)"
WITH_TLS = "a service behind TLS has a wss:// or https:// URL; else another kind of service has this port"
TRUST_IT = "name the host as the certificate does, or let SSL_CERT_FILE name the authority that signed it"
CHECK_PROXY = "the proxy is that of the environment (HTTPS_PROXY, HTTP_PROXY); NO_PROXY=HOST goes without"


def connect_error(url: str, error: WebSocketException | OSError) -> ClientError:
    """`Refused` where the service itself says no, else `CannotConnect` with the fix for what is wrong."""
    parts = urlsplit(url)
    with_tls = parts.scheme == "wss"
    match error:
        case InvalidStatus(response=response):
            headers = dict(response.headers.raw_items())
            return refusal(url, response.status_code, headers, bytes(response.body or b""))
        case InvalidURI():
            return CannotConnect(url, "not a WebSocket URL", CHECK_NAME)
        case ProxyError():
            return CannotConnect(url, f"the proxy does not pass it on ({error})", CHECK_PROXY)
        case socket.gaierror():
            return CannotConnect(url, f"the name {parts.hostname!r} cannot be resolved ({error.strerror})", CHECK_NAME)
        case ssl.SSLCertVerificationError():
            return CannotConnect(url, f"its certificate is not trusted ({error.verify_message})", TRUST_IT)
        case ssl.SSLError():
            return CannotConnect(url, f"what answers there does not speak TLS ({error.reason})", NO_TLS)
        case TimeoutError():
            return CannotConnect(url, "it did not answer in time", CHECK_ADDRESS)
        case ConnectionResetError() if with_tls:
            return CannotConnect(url, "it closed the connection instead of speaking TLS", NO_TLS)
        case OSError() if _nobody_listens(error):
            return CannotConnect(url, "connection refused, nothing listens there", START_IT)
        case OSError():
            reason = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
            return CannotConnect(url, reason, CHECK_ADDRESS)
        case _:
            told = f"what answers there is no WebSocket service ({error})"
            return CannotConnect(url, told, CHECK_PORT if with_tls else WITH_TLS)


def _nobody_listens(error: OSError) -> bool:
    """Also for a name with several addresses, of which asyncio has tried all: its error has their texts alone."""
    return error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error)
