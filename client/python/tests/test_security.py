"""TLS and tokens, against a small server of this test that shows what it receives."""

import concurrent.futures
import os
import subprocess
import tempfile
import unittest

import grpc
import semaphored
from semaphored._credentials import is_local
from semaphored.v1 import semaphore_pb2 as pb
from semaphored.v1 import semaphore_pb2_grpc as pb_grpc

from real import wait_until

TOKEN = "smt_" + "x" * 43


class Server(pb_grpc.SemaphoreServiceServicer):
    """Says in a verdict's holder who asked."""

    def __init__(self):
        self.tokens = []

    def Verify(self, request, context):
        metadata = dict(context.invocation_metadata())
        self.tokens.append(metadata.get("authorization"))
        names = context.auth_context().get("x509_common_name", [b""])
        return pb.VerifyResponse(held=True, lease=pb.Lease(holder=names[0].decode()))

    def Session(self, requests, context):
        self.tokens.append(dict(context.invocation_metadata()).get("authorization"))
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no client may")


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_certificates(folder):
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test ca")
    for name, subject in (("server", "semaphored.test"), ("client", "a client")):
        openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                f"/CN={subject}")
        with open(os.path.join(folder, "names"), "w", encoding="ascii") as file:
            file.write("subjectAltName=DNS:semaphored.test")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "2", "-out", f"{name}.pem", "-extfile", "names")


class Security(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-tls-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        make_certificates(cls.folder)

    def file(self, name):
        return os.path.join(self.folder, name)

    def content(self, name):
        with open(self.file(name), "rb") as file:
            return file.read()

    def serve(self, tls):
        servicer = Server()
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        pb_grpc.add_SemaphoreServiceServicer_to_server(servicer, server)
        if tls:
            credentials = grpc.ssl_server_credentials(
                [(self.content("server.key"), self.content("server.pem"))],
                self.content("ca.pem"), require_client_auth=True)
            port = server.add_secure_port("127.0.0.1:0", credentials)
        else:
            port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        return servicer, f"127.0.0.1:{port}"

    def client(self, address, **options):
        client = semaphored.Client(address, connect_timeout=0.5, **options)
        self.addCleanup(client.close)
        return client

    def verify(self, client):
        return client.verify_token("db", 1, 1)

    def test_mutual_tls(self):
        servicer, address = self.serve(tls=True)
        options = {"ca_file": self.file("ca.pem"), "cert_file": self.file("client.pem"),
                   "key_file": self.file("client.key"), "server_name": "semaphored.test"}
        client = self.client(address, token=TOKEN, **options)
        self.assertEqual(self.verify(client).holder, "a client")
        self.assertEqual(servicer.tokens, [f"Bearer {TOKEN}"])
        with self.assertRaises(semaphored.UnauthenticatedError):
            client.acquire("db", limit=1)
        for left_out in ("ca_file", "server_name"):
            fewer = {key: value for key, value in options.items() if key != left_out}
            with self.assertRaises(semaphored.Unreachable):
                self.verify(self.client(address, **fewer))
        with self.assertRaises(semaphored.Unreachable):
            self.verify(self.client(address))  # not TLS at all

    def test_a_token_file_is_read_again(self):
        servicer, address = self.serve(tls=False)
        path = self.file("token")
        with open(path, "w", encoding="ascii") as file:
            file.write(TOKEN + "\n")
        client = self.client(address, token_file=path)
        self.verify(client)
        with self.assertRaises(semaphored.UnauthenticatedError):
            client.acquire("db", limit=1)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("smt_another")
        os.rename(path + ".new", path)

        def is_sent():
            self.verify(client)
            return servicer.tokens[-1] == "Bearer smt_another"
        wait_until(is_sent, "the new token is sent")
        os.unlink(path)
        self.verify(client)
        self.assertEqual(servicer.tokens[-1], "Bearer smt_another")
        self.assertEqual(servicer.tokens[:2], [f"Bearer {TOKEN}"] * 2)

    def test_an_empty_token_file_is_read_again_and_not_sent(self):
        servicer, address = self.serve(tls=False)
        path = self.file("rewritten")
        with open(path, "w", encoding="ascii"):
            client = self.client(address, token_file=path)
            self.verify(client)
        for token in (TOKEN, "smt_another"):
            with open(path, "w", encoding="ascii") as file:
                self.verify(client)  # in the middle of being rewritten
                file.write(token)
            self.verify(client)
        self.assertEqual(servicer.tokens, [None, None, f"Bearer {TOKEN}", f"Bearer {TOKEN}",
                                           "Bearer smt_another"])

    def test_no_token_in_the_clear(self):
        for endpoint in ("db.example:7420", "10.0.0.1:7420", "0.0.0.0:7420", "[2001:db8::1]:7420",
                         "localhost.example:7420", "dns:///db.example:7420"):
            self.assertFalse(is_local(endpoint), endpoint)
            with self.assertRaises(semaphored.InvalidArgumentError) as refused:
                semaphored.Client(["127.0.0.1:7420", endpoint], token=TOKEN)
            self.assertIn(endpoint, str(refused.exception))
            self.assertNotIn(TOKEN, str(refused.exception))
            semaphored.Client(endpoint, token=TOKEN, tls=True).close()
        for endpoint in ("127.0.0.1:7420", "127.9.9.9:1", "[::1]:7420", "localhost:7420",
                         "unix:/run/semaphored", "ipv4:127.0.0.1:7420"):
            self.assertTrue(is_local(endpoint), endpoint)
            semaphored.Client(endpoint, token=TOKEN).close()

    def test_options_that_are_wrong_are_named(self):
        for options, name in (({"cert_file": self.file("client.pem")}, "cert_file"),
                              ({"token": "a", "token_file": "b"}, "token"),
                              ({"token": "two words"}, "token"), ({"token": ""}, "token"),
                              ({"ca_file": self.file("none.pem")}, "ca_file"),
                              ({"token_file": self.file("none")}, "token_file")):
            with self.assertRaises(semaphored.InvalidArgumentError) as refused:
                semaphored.Client("127.0.0.1:7420", **options)
            self.assertTrue(refused.exception.message.startswith(name), refused.exception)


if __name__ == "__main__":
    unittest.main()
