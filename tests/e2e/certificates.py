"""Certificates for tests, made with the openssl program: an authority, and what it signs."""

import os
import subprocess


def openssl(*arguments, **options):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60, **options)


class Pair:
    """A certificate and its key, as paths and as bytes."""

    def __init__(self, cert_file, key_file):
        self.cert_file = cert_file
        self.key_file = key_file

    def cert(self):
        with open(self.cert_file, "rb") as file:
            return file.read()

    def key(self):
        with open(self.key_file, "rb") as file:
            return file.read()


class Authority(Pair):
    """Signs certificates; its own certificate is what others verify them by."""

    def __init__(self, folder, name):
        self.folder = folder
        self.name = name
        super().__init__(os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key"))
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", self.key_file, "-out", self.cert_file, "-days", "2",
                "-subj", f"/CN={name}")

    def sign(self, name, alternative="DNS:localhost,IP:127.0.0.1", days=2):
        """A pair whose common name is `name`. `days` 0 or less: it has expired."""
        stem = os.path.join(self.folder, f"{self.name}-{name.replace('/', '_')}")
        pair = Pair(stem + ".pem", stem + ".key")
        request, extensions = stem + ".csr", stem + ".ext"
        with open(extensions, "w", encoding="ascii") as file:
            file.write(f"subjectAltName={alternative}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", pair.key_file, "-out", request, "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.cert_file, "-CAkey", self.key_file,
                "-CAcreateserial", "-out", pair.cert_file, "-days", str(days),
                "-extfile", extensions)
        return pair
