"""Each package is built by its make target, installed into an empty place and run there."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, SHOAL
from server import TINY

# What belongs to glibc; libcurl and libcuda are opened when they are needed.
GLIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "linux-vdso.so.1"}
VERSION = subprocess.run([SHOAL, "version", "-short"], capture_output=True, text=True,
                         check=False).stdout.strip()


def make(target, *args):
    done = subprocess.run(["make", "-s", "-o", "build/shoal", target, *args], cwd=ROOT,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[0] if done.stdout else ""


@pytest.fixture
def root(tmp_path):
    """A root that holds the three files of glibc, a model and mount points; nothing else."""
    path = tmp_path / "root"
    text = subprocess.run(["ldd", SHOAL], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+) \(0x", text):
        assert os.path.basename(library) in GLIBC
        (path / os.path.dirname(library)[1:]).mkdir(parents=True, exist_ok=True)
        shutil.copy(library, str(path) + library)
    for name in ("proc", "dev", "tmp", "root"):
        (path / name).mkdir()
    shutil.copy(TINY, path / "root" / "tiny.gguf")
    return path


def run_in(root, *args):
    """In the root as its only world, with a /proc and an empty network."""
    as_root = ["-r"] if os.geteuid() else []
    inside = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    return subprocess.run(["unshare", *as_root, "-mn", "sh", "-c", inside, str(root), *args],
                          capture_output=True, text=True, timeout=60, check=False,
                          env={"HOME": "/root", "PATH": os.environ["PATH"]})


def check_installed(root, binary="/usr/bin/shoal"):
    """It starts, reads a model's header, and answers with a child that runs the engine."""
    done = run_in(root, binary, "version", "-short")
    assert (done.returncode, done.stdout) == (0, VERSION + "\n"), done.stderr
    done = run_in(root, binary, "list")
    assert done.returncode == 0 and "no models yet" in done.stdout, done.stderr
    done = run_in(root, binary, "plan", "-json", "/root/tiny.gguf")
    assert done.returncode == 0 and json.loads(done.stdout)["fits"], done.stderr
    done = run_in(root, binary, "run", "-local", "-n", "4", "-temp", "0", "/root/tiny.gguf", "hi")
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_the_binary_needs_nothing_but_glibc():
    text = subprocess.run(["readelf", "-d", SHOAL], capture_output=True, text=True,
                          check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(.*)\]", text)) <= GLIBC
    text = subprocess.run(["readelf", "-V", SHOAL], capture_output=True, text=True,
                          check=True).stdout
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", text)}
    assert max(versions) <= (2, 36)


def test_make_install_honours_destdir_and_prefix(root):
    make("install", f"DESTDIR={root}", "PREFIX=/usr")
    check_installed(root)
    for name in ("bash-completion/completions/shoal", "zsh/site-functions/_shoal",
                 "fish/vendor_completions.d/shoal.fish", "man/man1/shoal.1"):
        assert (root / "usr" / "share" / name).stat().st_size > 1000


def test_the_tarball_is_checked_before_it_is_installed(tmp_path, root):
    tarball = os.path.join(ROOT, make("dist"))
    folder = os.path.dirname(tarball)
    env = {"HOME": str(root / "root"), "PATH": os.environ["PATH"]}
    script = os.path.join(folder, "install.sh")
    done = subprocess.run(["sh", script], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    check_installed(root, "/root/.local/bin/shoal")
    assert os.path.getsize(root / "root" / ".local" / "bin" / "shoal") < 12 << 20 or \
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
    shutil.rmtree(root / "root" / ".local")
    done = subprocess.run(["sh", script, str(bad)], capture_output=True, text=True, env=env,
                          check=False)
    assert done.returncode == 1 and "expected" in done.stderr
    assert not (root / "root" / ".local").exists()


def test_the_debian_package_installs(root):
    if not shutil.which("dpkg-deb"):
        pytest.fail("dpkg-deb is missing")
    package = os.path.join(ROOT, make("deb"))
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True,
                            check=True).stdout
    assert "Package: shoal\n" in fields and f"Version: {VERSION}\n" in fields
    subprocess.run(["dpkg-deb", "-x", package, str(root)], check=True)
    check_installed(root)
    listing = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True,
                             check=True).stdout
    assert all("root/root" in line for line in listing.splitlines())


def test_the_wheel_installs_with_pip(tmp_path, root):
    wheel = os.path.join(ROOT, make("wheel"))
    assert os.path.basename(wheel) == f"shoal_ai-{VERSION}-py3-none-manylinux_2_36_x86_64.whl"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "v")], check=True)
    subprocess.run([str(tmp_path / "v" / "bin" / "pip"), "install", "-q", "--no-index",
                    "--disable-pip-version-check", wheel], check=True)
    done = subprocess.run([tmp_path / "v" / "bin" / "shoal", "version", "-short"],
                          capture_output=True, text=True, env={"PATH": "/nonexistent"}, check=True)
    assert done.stdout == VERSION + "\n"
    shutil.copy(tmp_path / "v" / "bin" / "shoal", root)
    check_installed(root, "/shoal")
    shown = subprocess.run([str(tmp_path / "v" / "bin" / "pip"), "show", "shoal-ai"],
                           capture_output=True, text=True, check=True).stdout
    assert f"Version: {VERSION}\n" in shown
