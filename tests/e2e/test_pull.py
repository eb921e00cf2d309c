"""`shoal pull` against a hub on loopback whose faults are scripted: docs/BEHAVIOUR.md 4.4, 4.5."""
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import ROOT, SHOAL

sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))
from hub import Hub  # noqa: E402

PIECE = 65536
RUNS = int(os.environ.get("PULL_KILLS", "200"))


def gguf(size, seed=1):
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


DATA = gguf(10 * PIECE + 777)


@pytest.fixture
def hub():
    with Hub() as h:
        h.add("o/r", {"README.md": b"hello", "m.Q8_0.gguf": gguf(3 * PIECE, 2),
                      "m.Q4_K_M.gguf": DATA})
        yield h


@pytest.fixture
def store(home):
    return home / ".shoal" / "models"


def env_of(home, hub, **more):
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
            "SHOAL_HUB": hub.url, "SHOAL_HUB_RETRY": "10ms", "SHOAL_HUB_PIECE": str(PIECE),
            **more}


@pytest.fixture
def pull(shoal, home, hub):
    def run(*args, timeout=60, **env):
        return shoal("pull", *args, timeout=timeout, env=env_of(home, hub, **env))
    return run


def start(home, hub, *args, stderr=subprocess.PIPE, **env):
    return subprocess.Popen([SHOAL, "pull", *args], env=env_of(home, hub, **env), stderr=stderr,
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


def left(store):
    return sorted(p.name for p in store.iterdir()) if store.exists() else []


def check_done(done, store, name="m.Q4_K_M.gguf", data=DATA):
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{store / name}\n"
    assert (store / name).read_bytes() == data
    assert not [n for n in left(store) if n.endswith((".part", ".state"))]


def sha_ranges(hub):
    """Bytes asked from where the bytes are, as a list of (first, last)."""
    return [r.range for r in hub.asked("cdn") if r.range]


# ---------------------------------------------------------------- what is fetched


@pytest.mark.parametrize("reference", [
    "o/r", "o/r:Q4_K_M", "o/r:q4_k", "o/r@main", "o/r@c0ffee" + "0" * 34, "hf.co/o/r:Q4_K_M",
    "huggingface.co/o/r", "https://huggingface.co/o/r/blob/main/m.Q4_K_M.gguf", "URL"])
def test_every_form_of_a_reference_fetches_the_file(pull, store, hub, reference):
    if reference == "URL":
        reference = hub.url + "/o/r/resolve/main/m.Q4_K_M.gguf"
    check_done(pull(reference), store)
    assert os.stat(store).st_mode & 0o777 == 0o700


def test_flags_choose_revision_file_and_connections(pull, store, hub):
    done = pull("-file", "m.Q8_0.gguf", "-rev", "c0ffee" + "0" * 34, "-connections=1", "o/r")
    check_done(done, store, "m.Q8_0.gguf", gguf(3 * PIECE, 2))
    for args, code in ((["-connections", "0", "o/r"], 2), (["-connections", "33", "o/r"], 2),
                       (["-rev", "../x", "o/r"], 2), (["o r"], 2), ([], 2)):
        assert pull(*args).returncode == code, args


def test_dry_run_fetches_nothing_and_says_what_it_would(pull, store, hub):
    done = pull("-dry-run", "o/r")
    assert (done.returncode, done.stdout) == (0, f"{store}/m.Q4_K_M.gguf  640.8 KB  to fetch\n")
    assert left(store) == [] and not hub.asked("cdn")


def test_pieces_come_over_several_connections_each_once(pull, store, hub):
    hub.rate = 2_000_000
    check_done(pull("o/r"), store)
    asked = sorted(sha_ranges(hub))
    assert asked == [(i * PIECE, min((i + 1) * PIECE, len(DATA)) - 1) for i in range(11)]
    assert len(hub.asked("hub", "/resolve/")) == 1  # the signed address serves the others


def test_a_split_set_comes_whole_into_one_directory(pull, store, hub):
    parts = {f"Q4/big-{i:05}-of-00003.gguf": gguf(PIECE + i, i) for i in (1, 2, 3)}
    hub.add("o/set", parts)
    done = pull("o/set")
    assert done.returncode == 0, done.stderr
    assert left(store) == [".pulled"] + [os.path.basename(n) for n in sorted(parts)]
    for name, data in parts.items():
        assert (store / os.path.basename(name)).read_bytes() == data


def test_the_projector_comes_on_request_under_the_model_s_name(pull, store, hub):
    hub.add("o/eye", {"eye-Q4_K_M.gguf": gguf(500), "mmproj-BF16.gguf": gguf(300, 3),
                      "mmproj-F16.gguf": gguf(400, 4)})
    assert pull("o/eye").returncode == 0
    assert left(store) == [".pulled", "eye-Q4_K_M.gguf"]
    assert pull("-mmproj", "o/eye").returncode == 0
    assert (store / "mmproj-eye-Q4_K_M-F16.gguf").read_bytes() == gguf(400, 4)


def test_what_cannot_be_chosen_is_refused_with_the_names(pull, store, hub):
    for reference, text in (("o/r:Q5", 'no GGUF file matches "Q5"; there are: m.Q4_K_M, m.Q8_0'),
                            ("o/r:Q", 'several files match "Q"'),
                            ("o/none", "no such repository"),
                            ("o/r@dev", "no such repository, revision")):
        done = pull(reference)
        assert done.returncode == 1 and text in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1
    hub.add("o/parts", {"config.json": b"{}", "model.safetensors": b"x" * 100}, model_type="odd9")
    done = pull("o/parts")
    assert done.returncode == 1 and 'model type "odd9" are not supported' in done.stderr


def test_several_references_are_all_tried(pull, store, hub):
    done = pull("o/none", "o/r", "o/r:Q8_0")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"{store}/m.Q4_K_M.gguf", f"{store}/m.Q8_0.gguf"]


# ---------------------------------------------------------------- CASES F


def test_f01_three_pulls_of_one_model_make_one_transfer(home, hub, store):
    hub.rate = 50_000
    runs = [start(home, hub, "o/r") for _ in range(3)]
    outs = [r.communicate(timeout=60) for r in runs]
    assert [r.returncode for r in runs] == [0, 0, 0], outs
    assert all(o[0].decode() == f"{store}/m.Q4_K_M.gguf\n" for o in outs)
    assert (store / "m.Q4_K_M.gguf").read_bytes() == DATA
    assert len(sha_ranges(hub)) == 11  # each piece once, over all three
    assert sum(b"another pull fetches it" in o[1] for o in outs) == 2


def test_f01_a_waiting_pull_takes_over_when_the_first_dies(home, hub, store):
    hub.rate = 100_000
    first = start(home, hub, "-connections", "1", "o/r")  # piece after piece: nine are to come
    wait_for_marks(store, 1)
    second = start(home, hub, "o/r")
    assert b"another pull fetches it" in second.stderr.readline()
    first.kill()
    first.communicate()
    hub.rate = 0
    out, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert (store / "m.Q4_K_M.gguf").read_bytes() == DATA


@pytest.mark.parametrize("size", [len(DATA), 5 * PIECE])
def test_f01_another_model_of_the_same_name_is_not_taken_for_ours(home, hub, store, size):
    hub.add("p/r", {"m.Q4_K_M.gguf": gguf(size, 9)})
    hub.rate = 100_000
    first = start(home, hub, "-connections", "1", "o/r")  # piece after piece: ten are to come
    wait_for_marks(store, 1)
    second = start(home, hub, "p/r")
    assert b"another pull fetches it" in second.stderr.readline()
    hub.rate = 0
    assert first.wait(60) == 0
    out, errors = second.communicate(timeout=60)
    assert (second.returncode, out) == (1, b"")
    assert b"is there already and is another file" in errors, errors
    assert (store / "m.Q4_K_M.gguf").read_bytes() == DATA
    assert left(store) == [".pulled", "m.Q4_K_M.gguf"]
    first.communicate()


def test_f02_a_flipped_byte_costs_only_that_range_when_a_checksum_comes_along(pull, hub, store):
    hub.fault("flip", digest=True, when=lambda r: r.range and r.range[0] == 7 * PIECE)
    check_done(pull("o/r"), store)
    asked = sha_ranges(hub)
    assert len(asked) == 12 and asked.count((7 * PIECE, 8 * PIECE - 1)) == 2


@pytest.mark.parametrize("digest", ["md5", "sha256"])
def test_f02_right_checksums_of_pieces_are_accepted(pull, hub, store, digest):
    hub.digest = digest
    check_done(pull("o/r"), store)
    assert len(sha_ranges(hub)) == 11


def test_f02_without_a_checksum_only_what_differs_is_replaced(pull, hub, store):
    hub.fault("flip", when=lambda r: r.range and r.range[0] == 7 * PIECE)
    done = pull("o/r")
    check_done(done, store)
    assert "sha256 is not the published one" in done.stderr
    assert len(sha_ranges(hub)) == 22  # each piece once more, over new connections


def test_f02_wrong_bytes_never_get_the_model_s_name(pull, hub, store):
    hub.listed_sha["m.Q4_K_M.gguf"] = "12" * 32
    done = pull("o/r")
    assert done.returncode == 1
    assert "do not have the sha256" in done.stderr
    assert "m.Q4_K_M.gguf" not in left(store)


def test_f02_a_piece_damaged_on_disk_is_the_only_one_fetched_again(home, pull, hub, store):
    hub.rate = 400_000
    run = start(home, hub, "-connections", "4", "o/r")
    wait_for_marks(store, 4)
    run.kill()
    run.communicate()
    part = store / ".m.Q4_K_M.gguf.part"
    marked = marks_of(store)
    with open(part, "r+b") as f:
        f.seek(marked[0] * PIECE + 99)
        byte = f.read(1)
        f.seek(-1, 1)
        f.write(bytes([byte[0] ^ 1]))
    hub.rate = 0
    hub.forget()
    done = pull("o/r")
    check_done(done, store)
    assert f"piece {marked[0]} on the disk is damaged" in done.stderr
    firsts = {r[0] // PIECE for r in sha_ranges(hub)}
    assert marked[0] in firsts and not firsts & set(marked[1:])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_f03_a_complete_model_makes_hub_errors_warnings(pull, hub, store, status):
    check_done(pull("o/r"), store)
    hub.fault("status", times=99, where="hub", status=status, headers=[("Retry-After", "0")])
    done = pull("o/r")
    check_done(done, store)
    assert f"HTTP {status}" in done.stderr or "429" in done.stderr
    assert "all files of o/r@main: are here" in done.stderr
    assert pull("o/r:Q8_0").returncode == 1  # that one is not here


def test_f03_no_network_at_all_is_a_warning_too(pull, hub, store):
    check_done(pull("o/r"), store)
    for place in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
        done = pull("o/r", SHOAL_HUB=place)
        check_done(done, store)
        assert "are here" in done.stderr


def test_without_any_network_the_reason_and_the_mirrors_are_said(home, store):
    """The default hub, from a network namespace that holds nothing."""
    alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "SHOAL_HUB_RETRY": "1ms"}
    done = subprocess.run([*alone, SHOAL, "pull", "o/r"], env=env, capture_output=True, timeout=30,
                          check=False)
    text = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert re.fullmatch(r"shoal: huggingface\.co: .{5,160}; hub\.mirrors can name other hubs\n",
                        text), text
    assert not left(store)


def test_f05_without_an_etag_a_known_hash_resumes(home, pull, hub, store):
    hub.has_etag = False
    hub.rate = 400_000
    run = start(home, hub, "-connections", "4", "o/r")
    wait_for_marks(store, 3)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=10)
    assert run.returncode == 130
    marked = marks_of(store)
    hub.forget()
    hub.rate = 0
    hub.etag = "another-by-now"
    hub.has_etag = True
    done = pull("o/r")
    check_done(done, store)
    assert "starting over" not in done.stderr
    assert not {r[0] // PIECE for r in sha_ranges(hub)} & set(marked)


def test_f05_why_a_resume_was_declined_is_said(home, pull, hub, store):
    hub.has_lfs = False
    hub.rate = 400_000
    run = start(home, hub, "-connections", "4", "o/r")
    wait_for_marks(store, 2)
    run.kill()
    run.communicate()
    hub.rate = 0
    hub.etag = "new"
    done = pull("o/r")
    check_done(done, store)
    assert "starting over: the hub has another version of it now" in done.stderr
    hub.add("o/r", {"m.Q4_K_M.gguf": gguf(5 * PIECE, 9)}, commit="d" * 40)
    hub.rate = 200_000
    run = start(home, hub, "-connections", "1", "o/r")  # piece after piece: not all at once
    wait_for_marks(store, 1)
    run.kill()
    run.communicate()
    hub.rate = 0
    hub.add("o/r", {"m.Q4_K_M.gguf": gguf(4 * PIECE, 9)}, commit="e" * 40)
    done = pull("o/r")
    check_done(done, store, data=gguf(4 * PIECE, 9))
    assert "starting over: the hub lists another size now" in done.stderr


def test_f05_where_nothing_identifies_the_file_one_run_fetches_it_and_none_goes_on(home, pull, hub,
                                                                                    store):
    hub.has_lfs = hub.has_etag = False
    check_done(pull("o/r:Q8_0"), store, "m.Q8_0.gguf", gguf(3 * PIECE, 2))
    hub.rate = 200_000
    run = start(home, hub, "-connections", "1", "o/r")
    wait_for_marks(store, 1)
    run.kill()
    run.communicate()
    hub.rate = 0
    done = pull("o/r")
    check_done(done, store)
    assert done.stderr.count("starting over: nothing tells whether it is still the same file") == 1


@pytest.mark.parametrize("fault,where,text", [
    ("html", "hub", "web page"), ("html", "cdn", "answers with a web page instead of the file"),
    ("json_error", "cdn", "answers with application/json instead of the file"),
    ("binary_page", "cdn", "sends something that is no GGUF file"),
    ("ignore_range", "cdn", "ignores the range"), ("wrong_range", "cdn", "another range"),
    ("wrong_size", "cdn", "has a file of 656138 bytes, the hub lists 656137")])
def test_f06_what_is_not_the_model_is_refused_and_the_host_is_named(pull, hub, store, fault, where,
                                                                    text):
    hub.fault(fault, times=99, where=where)
    done = pull("o/r")
    assert done.returncode == 1 and text in done.stderr, done.stderr
    host = (hub.url if where == "hub" else hub.cdn_url).split("//")[1]
    assert host in done.stderr
    assert left(store) in ([], [".m.Q4_K_M.gguf.state"])  # and no room is held for it
    hub.forget()
    check_done(pull("o/r"), store)  # and nothing of it was kept


def test_f07_the_token_goes_to_its_origin_alone(shoal, home, store, tls):
    with Hub(tls=tls) as hub, Hub(tls=tls) as other:
        for h in (hub, other):
            h.add("o/r", {"m.Q4_K_M.gguf": DATA}, gated=h is hub)
        env = env_of(home, hub, SHOAL_HUB_CA_FILE=tls[0])
        done = shoal("pull", "o/r", env=env)
        assert done.returncode == 1 and "private, gated or misspelled" in done.stderr
        env["HF_TOKEN"] = hub.token
        check_done(shoal("pull", "o/r", env=env), store)
        assert all(r.headers.get("authorization") == "Bearer hf_secret"
                   for r in hub.asked("hub")[1:])
        assert not [r for r in hub.asked("cdn") if "authorization" in r.headers]
        # J08: neither a challenge nor a redirect of the list leads it elsewhere.
        hub.fault("redirect", where="hub", to=other.url + "/api/models/o/r/revision/main")
        assert shoal("pull", "o/r", env=env).returncode == 0
        assert other.asked("hub") and not [r for r in other.asked("hub")
                                           if "authorization" in r.headers]


def test_f07_the_token_never_goes_over_plain_http(pull, hub, store):
    check_done(pull("o/r", HF_TOKEN="hf_secret"), store)
    assert not [r for r in hub.requests if "authorization" in r.headers]


def test_f07_free_space_is_checked_before_anything_is_fetched(home, hub, store):
    store.mkdir(parents=True)
    script = (f'mount -t tmpfs -o size=1m none "{store}" && '
              f'{SHOAL} pull o/r; code=$?; ls -A "{store}"; exit $code')
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    done = subprocess.run([*unshare, "sh", "-c", script], env=env_of(home, hub),
                          capture_output=True, timeout=30, check=False)
    assert done.returncode == 1
    text = done.stderr.decode()
    assert re.search(r"models: 102\d\.\d MB more are needed: 640\.8 KB to fetch and 1\.0 GB to "
                     r"leave over, free are \d+\.\d [KM]B\n", text), text
    assert done.stdout == b"" and not hub.asked("cdn")


def test_f07_a_full_disk_keeps_what_came(home, pull, hub, store):
    """The limit of a file's size stands for a disk that fills up: the kernel refuses the write."""
    hub.rate = 400_000
    run = start(home, hub, "-connections", "4", "o/r")
    wait_for_marks(store, 3)
    run.kill()
    run.communicate()
    before = marks_of(store)
    code = ("import os,resource,signal,sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({5 * PIECE},) * 2); "
            "os.execv(sys.argv[1], sys.argv[1:])")
    done = subprocess.run([sys.executable, "-c", code, SHOAL, "pull", "o/r"],
                          env=env_of(home, hub), capture_output=True, timeout=30, check=False)
    assert done.returncode == 1
    assert b"File too large" in done.stderr and len(done.stderr.splitlines()) == 1
    assert set(before) <= set(marks_of(store))
    hub.rate = 0
    check_done(pull("o/r"), store)


# ---------------------------------------------------------------- networks


@pytest.mark.parametrize("fault", ["close", "reset", "short_range"])
def test_broken_answers_go_on_where_they_broke(pull, hub, store, fault):
    hub.fault(fault, times=6)
    check_done(pull("o/r"), store)
    total = sum(r[1] - r[0] + 1 for r in sha_ranges(hub))
    assert total < 2 * len(DATA)  # halves were kept


@pytest.mark.parametrize("fault", ["stall", "silent", "trickle"])
def test_a_connection_that_stands_still_is_given_up(pull, hub, store, fault):
    hub.fault(fault, times=3)
    begun = time.monotonic()
    check_done(pull("o/r", SHOAL_HUB_IDLE="300ms"), store)
    assert time.monotonic() - begun < 15


def test_a_network_that_goes_away_and_comes_back_costs_little(home):
    """Not a fault of a server: the interface itself is down, for less and for more than we wait."""
    alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
    done = subprocess.run([*alone, sys.executable, os.path.join(ROOT, "tests", "hub", "cut.py"),
                           SHOAL, str(home)], capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["code"], told["right"], told["was_cut"]) == (0, True, True), told
    assert told["left"] == [".pulled", "m.gguf"]
    assert "trying again in" in told["errors"] and told["asked"] < 1.9, told


@pytest.mark.parametrize("fault,text", [
    ("drip", "hardly anything came for"), ("drip_redirect", "a body without end"),
    ("endless_refusal", "no such repository")])
def test_a_list_that_never_ends_is_given_up(pull, hub, store, fault, text):
    hub.fault(fault, times=99, where="hub")
    done = pull("o/r", SHOAL_HUB_IDLE="300ms")
    assert done.returncode == 1 and text in done.stderr, done.stderr
    assert left(store) == []


def test_an_expired_address_is_asked_for_again(home, hub, store):
    hub.rate = 300_000
    run = start(home, hub, "-connections", "4", "o/r")
    wait_for_marks(store, 2)
    hub.signature = 2
    out, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors
    assert (store / "m.Q4_K_M.gguf").read_bytes() == DATA
    assert 2 <= len(hub.asked("hub", "/resolve/")) <= 12


def test_too_many_requests_are_waited_for_as_asked(pull, hub, store):
    hub.fault("status", times=2, where="hub", status=429, headers=[("Retry-After", "1")])
    hub.fault("status", times=2, where="cdn", status=429, headers=[("Retry-After", "0")])
    begun = time.monotonic()
    done = pull("o/r")
    check_done(done, store)
    assert time.monotonic() - begun > 2
    assert "asks to wait 1 s (HTTP 429)" in done.stderr
    hub.fault("status", times=1, where="hub", status=429, headers=[("Retry-After", "3600")])
    done = pull("o/r:Q8_0")
    assert done.returncode == 1 and "too many requests" in done.stderr


def test_the_next_mirror_is_tried_and_must_have_the_same_bytes(shoal, home, hub, store):
    hub.fault("status", times=10**6, where="cdn", status=503)
    with Hub() as mirror:
        mirror.add("o/r", {"m.Q4_K_M.gguf": DATA})
        config = home / "config.yaml"
        config.write_text(f"hub: {{mirrors: ['{mirror.url}']}}\n")
        env = env_of(home, hub, SHOAL_CONFIG=str(config), SHOAL_HUB_RETRY="1ms")
        check_done(shoal("pull", "o/r", env=env), store)
        assert mirror.asked("cdn")
        os.remove(store / "m.Q4_K_M.gguf")
        mirror.add("o/r", {"m.Q4_K_M.gguf": gguf(len(DATA), 77)})
        done = shoal("pull", "o/r", env=env)
        assert done.returncode == 1 and "m.Q4_K_M.gguf" not in left(store)


def test_a_hub_that_stays_away_ends_after_a_bounded_number_of_tries(pull, hub, store):
    hub.fault("status", times=10**6, where="cdn", status=503)
    done = pull("o/r", SHOAL_HUB_RETRY="1ms")
    assert done.returncode == 1
    assert "given up after 10 rounds of retries" in done.stderr
    assert "HTTP 503" in done.stderr


def test_redirects_are_bounded_and_never_lead_from_https_to_http(pull, shoal, home, hub, store,
                                                                 tls):
    hub.fault("redirect", times=10**6, where="hub", to="/api/models/o/r/revision/main")
    done = pull("o/r")
    assert done.returncode == 1 and "more than 5 redirects" in done.stderr
    for to in ("file:///etc/passwd", "ftp://127.0.0.1/x", "gopher:x", "http://a@127.0.0.1/"):
        hub.forget()
        hub.fault("redirect", times=9, where="hub", to=to)
        done = pull("o/r")
        assert done.returncode == 1 and "which is no http address" in done.stderr
    with Hub(tls=tls) as safe:
        safe.fault("redirect", times=9, where="hub", to=hub.url + "/x")
        done = shoal("pull", "o/r", env=env_of(home, safe, SHOAL_HUB_CA_FILE=tls[0]))
        assert done.returncode == 1 and "redirects from https to http" in done.stderr


def test_a_certificate_of_an_unknown_authority_is_refused(shoal, home, store, tls):
    with Hub(tls=tls) as hub:
        hub.add("o/r", {"m.Q4_K_M.gguf": DATA})
        done = shoal("pull", "o/r", env=env_of(home, hub))
        assert done.returncode == 1 and "SSL" in done.stderr, done.stderr
        assert not hub.requests
        check_done(shoal("pull", "o/r", env=env_of(home, hub, SHOAL_HUB_CA_FILE=tls[0])), store)


def test_proxies_of_the_environment_are_used(pull, hub, store):
    port = hub.listen("proxy")
    check_done(pull("o/r", HTTP_PROXY=f"http://127.0.0.1:{port}"), store)
    assert len(hub.asked("proxy")) == 13
    hub.forget()
    done = pull("o/r:Q8_0", HTTP_PROXY="http://127.0.0.1:1", NO_PROXY="127.0.0.1")
    assert done.returncode == 0 and not hub.asked("proxy")
    done = pull("o/r:Q8_0", HTTP_PROXY="http://127.0.0.1:1")
    assert "are here" in done.stderr


@pytest.fixture(scope="session")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=hub",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", [
    "../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", ".hidden.gguf", "a\0b.gguf",
    "a\nb.gguf", "a\x9b31m.gguf", "x" * 241 + ".gguf", "..\\a.gguf", "Q4/..gguf/../x.gguf"])
def test_a_name_that_cannot_be_one_is_refused_before_anything_is_written(pull, hub, home, name):
    hub.add("o/evil", {name: gguf(100)})
    done = pull("o/evil")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("shoal: hub: ")
    assert not [f for _, _, files in os.walk(home) for f in files]
    assert not os.path.exists("/etc/evil.gguf") and not hub.asked("cdn")


def test_a_file_of_ours_with_other_bytes_is_not_replaced(pull, hub, store):
    store.mkdir(parents=True)
    (store / "m.Q4_K_M.gguf").write_bytes(b"GGUF mine")
    done = pull("o/r")
    assert done.returncode == 1 and "is there already and is another file" in done.stderr
    assert (store / "m.Q4_K_M.gguf").read_bytes() == b"GGUF mine"


def test_a_file_that_was_copied_here_is_compared_and_not_fetched(pull, hub, store):
    store.mkdir(parents=True)
    (store / "m.Q4_K_M.gguf").write_bytes(DATA)
    check_done(pull("o/r"), store)
    assert not hub.asked("cdn")


def test_a_new_version_of_the_repository_replaces_the_old(pull, hub, store):
    check_done(pull("o/r"), store)
    new = gguf(2 * PIECE, 5)
    hub.add("o/r", {"m.Q4_K_M.gguf": new}, commit="f" * 40)
    check_done(pull("o/r"), store, data=new)


def test_links_in_place_of_the_partial_are_not_followed(pull, hub, home, store):
    store.mkdir(parents=True)
    victim = home / "victim"
    victim.write_bytes(b"precious")
    (store / ".m.Q4_K_M.gguf.part").symlink_to(victim)
    assert pull("o/r").returncode == 1
    assert victim.read_bytes() == b"precious"


def homeless(where, *args, **env):
    """A user of whom nobody knows a home: no HOME, an empty passwd, nobody else to ask."""
    as_root = ["-r"] if os.geteuid() else []
    inside = ('for f in passwd nsswitch.conf; do mount --bind /dev/null /etc/$f; done && '
              'exec "$0" "$@"')
    return subprocess.run(["unshare", *as_root, "-m", "sh", "-c", inside, SHOAL, *args], cwd=where,
                          capture_output=True, text=True, timeout=30, check=False,
                          env={"PATH": os.environ["PATH"], **env})


def test_without_a_home_nothing_is_written_where_we_stand(hub, tmp_path):
    (tmp_path / "here").mkdir()
    rows = [(["pull", "o/r"], 1, "shoal: pull: no home directory, so `store` must say where to\n"),
            (["plan", "x"], 1, 'shoal: no model "x": there are no models yet'),
            (["cache"], 1, "shoal: cache: no home directory, so `cache.spill` must say where it "
                           "is\n"),
            (["pull", "-config", "c.yaml", "o/r"], 1, "c.yaml:1:1: store: ~/m: there is no home "
             "directory that ~ could stand for"), (["list"], 0, ""), (["serve", "-dry-run"], 0, "")]
    (tmp_path / "here" / "c.yaml").write_text("store: ~/m\n")
    for args, code, text in rows:
        done = homeless(tmp_path / "here", *args, SHOAL_HUB=hub.url)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, code), done.stderr
        assert text in done.stderr, done.stderr
    assert left(tmp_path / "here") == ["c.yaml"] and not hub.asked("cdn")
    done = homeless(tmp_path / "here", "pull", "o/r", SHOAL_HUB=hub.url,
                    SHOAL_STORE=str(tmp_path / "m"))
    check_done(done, tmp_path / "m")


def test_a_store_that_cannot_be_written_is_one_sentence(pull, hub, home):
    done = pull("o/r", SHOAL_STORE="/proc/models")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "/proc/models" in done.stderr


# ---------------------------------------------------------------- kills


def state_text(store):
    try:
        return (store / ".m.Q4_K_M.gguf.state").read_text()
    except FileNotFoundError:
        return ""


def marks_of(store):
    return [int(line.split()[1]) for line in state_text(store).splitlines()
            if line.startswith("done ")]


def wait_for_marks(store, count, seconds=20):
    end = time.monotonic() + seconds
    while len(marks_of(store)) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_everything_received(home, pull, hub, store, number, code):
    hub.rate = 150_000
    run = start(home, hub, "-connections", "2", "o/r")
    wait_for_marks(store, 1)
    time.sleep(0.2)
    run.send_signal(number)
    out, errors = run.communicate(timeout=10)
    assert run.returncode == code and out == b""
    assert b"the same command goes on there" in errors
    had = sum(r[1] - r[0] + 1 for r in sha_ranges(hub))
    hub.forget()
    hub.rate = 0
    check_done(pull("o/r"), store)
    again = sum(r[1] - r[0] + 1 for r in sha_ranges(hub))
    assert again < len(DATA) - PIECE and had > 0
    parts = [r for r in sha_ranges(hub) if r[0] % PIECE]
    assert parts  # unfinished pieces went on in their middle


def test_a_signal_while_all_connections_wait_for_another_try_keeps_what_came(home, pull, hub,
                                                                              store):
    hub.fault("close", times=99)  # each answer ends in its middle
    run = start(home, hub, "-connections", "4", "o/r", SHOAL_HUB_RETRY="60s")
    end = time.monotonic() + 20
    while b"trying again in" not in (line := run.stderr.readline()):
        assert time.monotonic() < end and line
    time.sleep(0.5)  # the others fall, too
    run.send_signal(signal.SIGINT)
    errors = run.communicate(timeout=10)[1].decode()
    assert run.returncode == 130
    kept = {int(w[1]): int(w[2]) for w in map(str.split, state_text(store).splitlines())
            if w[0] == "part"}
    assert kept and set(kept) <= {r[0] // PIECE for r in sha_ranges(hub)}
    assert f"stopped at {sum(kept.values()) / 1024:.1f} / 640.8 KB" in errors
    hub.forget()
    check_done(pull("o/r"), store)
    again = sum(r[1] - r[0] + 1 for r in sha_ranges(hub))
    assert again == len(DATA) - sum(kept.values())


def test_killed_at_random_points_it_always_ends_with_the_right_bytes(home, hub, store):
    """At no time a final name on wrong bytes; after the last kill one clean run. Most kills count
    from the first byte asked for, so that a slow machine is cut in the middle too."""
    rng = random.Random(20261130)
    hub.rate = 600_000
    final = store / "m.Q4_K_M.gguf"
    cut = 0
    for i in range(RUNS):
        seen = len(hub.asked("cdn"))
        run = start(home, hub, "o/r")
        is_blind, end = rng.random() < 0.2, time.monotonic() + 10
        while not is_blind and len(hub.asked("cdn")) == seen and run.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.25))
        run.kill()
        run.communicate()
        cut += (store / ".m.Q4_K_M.gguf.part").exists()
        if final.exists():
            assert final.read_bytes() == DATA, i
            os.remove(final)
        if rng.random() < 0.2:
            hub.signature += 1
    assert cut >= RUNS / 4
    hub.rate = 0
    run = start(home, hub, "o/r")
    errors = run.communicate(timeout=60)[1]
    assert run.returncode == 0, errors
    assert final.read_bytes() == DATA
    assert left(store) == [".pulled", "m.Q4_K_M.gguf"]


def lose_power(log, rng):
    """Undoes what was never synced: garbage where bytes were, a shorter journal."""
    dirty, begun = {}, {}
    for line in log.read_text().splitlines():
        word, path, *rest = line.split(" ")
        if word == "w":
            dirty.setdefault(path, []).append((int(rest[0]), int(rest[1])))
        elif word == "b":
            begun[path] = len(dirty.get(path, []))
        elif word == "s":
            dirty[path] = dirty.get(path, [])[begun.pop(path, 0):]
    for path, writes in dirty.items():
        if not os.path.exists(path):
            continue
        if path.endswith(".state"):
            if writes:
                os.truncate(path, min(writes[0][0] + rng.randrange(writes[0][1]),
                                      os.path.getsize(path)))
            continue
        with open(path, "r+b") as f:
            for at, size in writes:
                f.seek(at)
                f.write(rng.randbytes(size))
    log.unlink()


def test_a_power_cut_that_drops_unsynced_bytes_is_survived(home, hub, store, tmp_path):
    rng = random.Random(7)
    shim = tmp_path / "nosync.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", str(shim),
                    os.path.join(ROOT, "tests", "hub", "nosync.c"), "-ldl"], check=True)
    log = tmp_path / "log"
    hub.rate = 2_000_000
    kept = 0
    for _ in range(12):
        seen, end = len(hub.asked("cdn")), time.monotonic() + 10
        run = start(home, hub, "o/r", LD_PRELOAD=str(shim), NOSYNC_LOG=str(log))
        while len(hub.asked("cdn")) == seen and run.poll() is None:  # on a slow machine too
            assert time.monotonic() < end
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.25))
        run.kill()
        run.communicate()
        if log.exists():
            lose_power(log, rng)
        kept = max(kept, len(marks_of(store)))
        final = store / "m.Q4_K_M.gguf"
        if final.exists():
            assert final.read_bytes() == DATA
            os.remove(final)
    assert kept  # some pieces outlived a cut
    hub.rate = 0
    run = start(home, hub, "o/r")
    errors = run.communicate(timeout=60)[1]
    assert run.returncode == 0, errors
    assert (store / "m.Q4_K_M.gguf").read_bytes() == DATA
    assert b"damaged" not in errors  # what the journal says was on the disk


# ---------------------------------------------------------------- what is shown


def test_on_a_terminal_one_line_shows_rate_and_time(home, hub, store):
    hub.rate = 40_000
    main, side = pty.openpty()
    run = start(home, hub, "o/r", stderr=side, TERM="xterm", COLUMNS="200")
    os.close(side)
    seen = b""
    line = rb"m\.Q4_K_M\.gguf +\d+ %  \d+\.\d / 640\.8 KB  \d+\.\d KB/s  \d+s"
    end = time.monotonic() + 20
    while time.monotonic() < end and not re.search(line, seen):
        if select.select([main], [], [], 0.1)[0]:
            try:
                seen += os.read(main, 65536)
            except OSError:
                break
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=10)
    os.close(main)
    assert b"\r" in seen
    assert re.search(line, seen), seen


def test_elsewhere_progress_is_a_line_now_and_then(pull, hub, store):
    done = pull("o/r")
    assert done.stderr == ""  # shorter than ten seconds: nothing to say
