"""A certificate that nobody vouches for, made for one test."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.support.left_out import leave_out

if TYPE_CHECKING:
    from pathlib import Path


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that has signed itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        leave_out("no openssl on this machine (Debian: apt-get install openssl)")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
