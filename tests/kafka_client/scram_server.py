"""The server's side of SCRAM, for tests: it proves itself, and it knows a wrong proof."""

import base64
import hashlib
import hmac


class ScramServer:
    """The other side, written from the RFC: it keeps the password only as its two keys."""

    def __init__(self, hash_name: str, password: str, iterations: int = 4096) -> None:
        self.hash_name = hash_name
        self.iterations = iterations
        self.salt = b"salt of sixteen!"
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), self.salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        self.stored_key = hashlib.new(hash_name, client_key).digest()
        self.server_key = hmac.digest(salted, b"Server Key", hash_name)
        self.username = ""
        self.bare = ""
        self.challenge = ""

    def first(self, message: bytes) -> bytes:
        header, _, self.bare = message.decode().partition(",,")
        assert header == "n"
        name, nonce = self.bare.split(",")
        self.username = name.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        salt = base64.b64encode(self.salt).decode()
        self.challenge = f"{nonce}server,s={salt},i={self.iterations}"
        return self.challenge.encode()

    def final(self, message: bytes) -> bytes:
        bare, _, proof = message.decode().rpartition(",p=")
        signed = f"{self.bare},{self.challenge},{bare}".encode()
        signature = hmac.digest(self.stored_key, signed, self.hash_name)
        pairs = zip(base64.b64decode(proof), signature, strict=True)
        client_key = bytes(one ^ other for one, other in pairs)
        if hashlib.new(self.hash_name, client_key).digest() != self.stored_key:
            return b"e=invalid-proof"
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, signed, self.hash_name))
