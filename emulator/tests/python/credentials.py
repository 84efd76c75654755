"""Writes credentials that nobody has issued: an emulator asks for none, but the system tests want to load some.

Usage: credentials.py FOLDER
"""

import json
import pathlib
import sys

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ROLES = ["subscriber", "publisher", "viewer", "editor"]


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for role in ROLES:
        account = {
            "type": "service_account",
            "project_id": "conformance",
            "private_key_id": "none",
            "private_key": key.decode(),
            "client_email": f"{role}@conformance.iam.gserviceaccount.com",
            "client_id": "none",
            "token_uri": "http://127.0.0.1:9/token",
        }
        (folder / f"pubsub-{role}-service-account.json").write_text(json.dumps(account))
    user = {"type": "authorized_user", "client_id": "none", "client_secret": "none", "refresh_token": "none"}
    (folder / "user.json").write_text(json.dumps(user))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
