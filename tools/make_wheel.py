#!/usr/bin/env python3
"""A wheel that carries the binary as a script: make_wheel.py BINARY VERSION DIR.

The form is that of the binary distribution format (packaging.python.org): a zip with the files of
NAME.data/scripts, METADATA, WHEEL and RECORD.
"""
import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

TAG = "py3-none-manylinux_2_36_x86_64"

METADATA = """Metadata-Version: 2.1
Name: shoal-ai
Version: {version}
Summary: Serves local language models to a fleet of agents
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """Wheel-Version: 1.0
Generator: make_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def stripped(binary):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "shoal")
        subprocess.run(["strip", "-o", out, binary], check=True)
        with open(out, "rb") as f:
            return f.read()


def main():
    binary, version, folder = sys.argv[1:]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(root, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    base = f"shoal_ai-{version}"
    files = [
        (f"{base}.data/scripts/shoal", stripped(binary), 0o755),
        (f"{base}.dist-info/METADATA", METADATA.format(version=version, readme=readme).encode(),
         0o644),
        (f"{base}.dist-info/WHEEL", WHEEL.format(tag=TAG).encode(), 0o644),
    ]
    record = ""
    for name, data, _ in files:
        sum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={sum},{len(data)}\n"
    record += f"{base}.dist-info/RECORD,,\n"
    files.append((f"{base}.dist-info/RECORD", record.encode(), 0o644))
    os.makedirs(folder, exist_ok=True)
    out = os.path.join(folder, f"{base}-{TAG}.whl")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data, mode in files:
            info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, data)
    print(out)


if __name__ == "__main__":
    main()
