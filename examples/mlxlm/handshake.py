"""What go-plugin expects of a plugin in any language: the handshake line, mutual TLS, health, controller and stdio services,
and an end when the host is gone.

grpcio's TLS cannot verify the P-521 certificate that go-plugin's hosts present, so Python's own ssl module ends the TLS on the
socket that the host knows, and passes the bytes on to the server's socket in the same private folder.
"""

import base64
import datetime
import os
import selectors
import signal
import socket
import ssl
import sys
import tempfile
import threading
from concurrent import futures

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

COOKIE_KEY, COOKIE_VALUE = "CLADE_PLUGIN", "d1a4c6f0-family"
MAJORS = [1]
MAX_MESSAGE = 4 << 20


def started_by_host():
    return os.environ.get(COOKIE_KEY) == COOKIE_VALUE


def negotiate(offered):
    """The highest major that both have; else our lowest, for which the host then says that it does not fit."""
    both = [int(v) for v in offered.split(",") if v.strip().isdigit() and int(v) in MAJORS]
    return max(both) if both else min(MAJORS)


def protect_stdout():
    """Keeps the handshake pipe to itself and makes descriptor 1 a copy of 2: what C libraries print never reaches it."""
    handshake = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return handshake


def die_with_host():
    """Standard input is the host's liveness pipe: at its end nobody can wait for a clean end."""

    def watch():
        while os.read(0, 4096):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    if os.environ.get("CLADE_LIVENESS"):
        threading.Thread(target=watch, daemon=True).start()


def certificate():
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA384())
    )
    return cert, key


def tls_context(cert, key, folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=os.environ["PLUGIN_CLIENT_CERT"])
    context.set_alpn_protocols(["h2"])
    chain = os.path.join(folder, "chain.pem")
    with open(os.open(chain, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as f:
        f.write(cert.public_bytes(serialization.Encoding.PEM))
        f.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context.load_cert_chain(chain)
    os.unlink(chain)
    return context


def pass_on(client, inner, context):
    """One connection: TLS towards the host, plain towards the server. One thread, as an ssl object is not for two."""
    try:
        tls = context.wrap_socket(client, server_side=True)
    except (OSError, ssl.SSLError):
        client.close()
        return
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(inner)
        tls.setblocking(False)
        server.setblocking(False)
        pump(tls, server)
    except (OSError, ssl.SSLError):
        pass
    finally:
        tls.close()
        server.close()


def pump(tls, server):
    waiting = {tls: b"", server: b""}  # bytes on their way to each
    most = 1 << 20
    with selectors.DefaultSelector() as selector:
        for s in (tls, server):
            selector.register(s, selectors.EVENT_READ)
        while True:
            for source, sink in ((tls, server), (server, tls)):
                while len(waiting[sink]) < most:
                    try:
                        data = source.recv(65536)
                    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        break
                    if not data:
                        return
                    waiting[sink] += data
            for sink in (tls, server):
                while waiting[sink]:
                    try:
                        waiting[sink] = waiting[sink][sink.send(waiting[sink]) :]
                    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        break
            for s, other in ((tls, server), (server, tls)):
                events = selectors.EVENT_READ if len(waiting[other]) < most else 0
                if waiting[s]:
                    events |= selectors.EVENT_WRITE
                selector.modify(s, events or selectors.EVENT_WRITE)
            selector.select(timeout=5)


def empty_unary(answer=b"", then=None):
    def call(_, context):
        if then:
            then()
        return answer

    return grpc.unary_unary_rpc_method_handler(call)


def quiet_stream(_, context):
    """go-plugin asks for our output over gRPC; it is on descriptor 2 instead."""
    ended = threading.Event()
    context.add_callback(ended.set)
    ended.wait()
    yield from ()


def serve(service, exit_):
    """Serves until exit_ ends the process. service is the contract's generic handler."""
    handshake = protect_stdout()
    die_with_host()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    outer = tempfile.mkdtemp(prefix="p", dir=os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or None)
    inner = os.path.join(outer, "inner")
    # Streams hold a thread each while they run.
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=64),
        options=[("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)],
    )
    health = {"Check": empty_unary(b"\x08\x01")}  # status: SERVING
    server.add_generic_rpc_handlers(
        (
            service,
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", health),
            grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": empty_unary(then=exit_)}),
            grpc.method_handlers_generic_handler("plugin.GRPCStdio", {"StreamStdio": grpc.unary_stream_rpc_method_handler(quiet_stream)}),
        )
    )
    server.add_insecure_port("unix:" + inner)
    server.start()
    cert, key = certificate()
    context = tls_context(cert, key, outer)
    path = os.path.join(os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or outer, "plugin%d" % os.getpid())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(16)
    der = base64.b64encode(cert.public_bytes(serialization.Encoding.DER)).decode().rstrip("=")
    print("1|%d|unix|%s|grpc|%s" % (negotiate(os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "1")), path, der), file=handshake, flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=pass_on, args=(client, inner, context), daemon=True).start()


def by_hand(name, version):
    print("clade-%s %s is a plugin: clade starts it; try `describe --json` or `version` here" % (name, version), file=sys.stderr)
    return 1
