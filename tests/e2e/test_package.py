"""Each package is built by its make target, installed into an empty place and run there."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, SHOAL

# What belongs to glibc; libcurl and libcuda are opened when they are needed.
GLIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "linux-vdso.so.1"}
VERSION = subprocess.run([SHOAL, "version", "-short"], capture_output=True, text=True,
                         check=False).stdout.strip()


def make(target, *args):
    done = subprocess.run(["make", "-s", "-o", "build/shoal", target, *args], cwd=ROOT,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[0] if done.stdout else ""


def run_bare(binary, *args, home="/nonexistent"):
    return subprocess.run([binary, *args], capture_output=True, text=True, timeout=30,
                          env={"HOME": str(home), "PATH": "/nonexistent"}, check=False)


def check_installed(prefix, binary="bin/shoal"):
    done = run_bare(prefix / binary, "version", "-short")
    assert (done.returncode, done.stdout) == (0, VERSION + "\n"), done.stderr
    assert run_bare(prefix / binary, "list").returncode == 0


def test_the_binary_needs_nothing_but_glibc():
    text = subprocess.run(["readelf", "-d", SHOAL], capture_output=True, text=True,
                          check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(.*)\]", text)) <= GLIBC
    text = subprocess.run(["readelf", "-V", SHOAL], capture_output=True, text=True,
                          check=True).stdout
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", text)}
    assert max(versions) <= (2, 36)


def test_make_install_honours_destdir_and_prefix(tmp_path):
    make("install", f"DESTDIR={tmp_path}", "PREFIX=/usr")
    check_installed(tmp_path / "usr")
    for name in ("bash-completion/completions/shoal", "zsh/site-functions/_shoal",
                 "fish/vendor_completions.d/shoal.fish", "man/man1/shoal.1"):
        assert (tmp_path / "usr" / "share" / name).stat().st_size > 1000


def test_the_tarball_is_checked_before_it_is_installed(tmp_path):
    tarball = os.path.join(ROOT, make("dist"))
    folder = os.path.dirname(tarball)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    script = os.path.join(folder, "install.sh")
    done = subprocess.run(["sh", script], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    check_installed(tmp_path / ".local")
    assert os.path.getsize(tmp_path / ".local" / "bin" / "shoal") < 12 << 20 or \
        b"fatbin" in open(SHOAL, "rb").read()
    bad = tmp_path / os.path.basename(tarball)
    shutil.copy(tarball, bad)
    done = subprocess.run(["sh", script, str(bad)], capture_output=True, text=True, env=env,
                          check=False)
    assert done.returncode == 1 and "what cannot be checked is not installed" in done.stderr
    shutil.copy(tarball + ".sha256", str(bad) + ".sha256")
    with open(bad, "r+b") as f:
        f.seek(1000)
        f.write(b"x")
    shutil.rmtree(tmp_path / ".local")
    done = subprocess.run(["sh", script, str(bad)], capture_output=True, text=True, env=env,
                          check=False)
    assert done.returncode == 1 and "expected" in done.stderr
    assert not (tmp_path / ".local").exists()


def test_the_debian_package_installs(tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.fail("dpkg-deb is missing")
    package = os.path.join(ROOT, make("deb"))
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True,
                            check=True).stdout
    assert "Package: shoal\n" in fields and f"Version: {VERSION}\n" in fields
    subprocess.run(["dpkg-deb", "-x", package, str(tmp_path)], check=True)
    check_installed(tmp_path / "usr")
    listing = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True,
                             check=True).stdout
    assert all("root/root" in line for line in listing.splitlines())


def test_the_wheel_installs_with_pip(tmp_path):
    wheel = os.path.join(ROOT, make("wheel"))
    assert os.path.basename(wheel) == f"shoal_ai-{VERSION}-py3-none-manylinux_2_36_x86_64.whl"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "v")], check=True)
    subprocess.run([str(tmp_path / "v" / "bin" / "pip"), "install", "-q", "--no-index",
                    "--disable-pip-version-check", wheel], check=True)
    check_installed(tmp_path / "v")
    shown = subprocess.run([str(tmp_path / "v" / "bin" / "pip"), "show", "shoal-ai"],
                           capture_output=True, text=True, check=True).stdout
    assert f"Version: {VERSION}\n" in shown
