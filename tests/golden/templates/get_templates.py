#!/usr/bin/env python3
"""The chat templates of the trl package that the repository does not keep, for a live comparison.

Usage: get_templates.py INTO
Downloads the package with pip, by the machine's own settings, and only unzips it: nothing of it is
imported or run. make_templates.py then writes what Jinja2 makes of each.
"""
import os
import subprocess
import sys
import tempfile
import zipfile

PACKAGE, MEMBERS = "trl==1.16.0", "trl/chat_templates/"


def main():
    into = sys.argv[1]
    os.makedirs(into, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                        "--disable-pip-version-check", "-d", folder, PACKAGE], check=True)
        wheel = os.path.join(folder, os.listdir(folder)[0])
        with zipfile.ZipFile(wheel) as z:
            for name in z.namelist():
                if name.startswith(MEMBERS) and name.endswith(".jinja"):
                    with open(os.path.join(into, os.path.basename(name)), "wb") as f:
                        f.write(z.read(name))


if __name__ == "__main__":
    main()
