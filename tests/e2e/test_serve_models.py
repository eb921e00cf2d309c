"""Several models behind one address: listed, loaded when asked for, swapped, unloaded."""
import concurrent.futures
import os
import shutil
import signal

import pytest

from conftest import ROOT
from server import REAL, children_of, is_alive, serving, wait_until

MODELS = ("llama", "qwen2", "qwen3")


def fill_store(home):
    store = home / ".shoal" / "models"
    store.mkdir(parents=True)
    for name in MODELS:
        os.symlink(os.path.join(ROOT, "build", "tiny", name + ".gguf"), store / (name + ".gguf"))
    (store / "broken.gguf").write_bytes(b"GGUF and then nothing that makes sense")


@pytest.fixture
def serve(tmp_path):
    fill_store(tmp_path)

    def start(*args, **kw):
        return serving(tmp_path, *args, **kw)
    return start


def complete(server, model, **more):
    body = {"model": model, "prompt": "Once upon", "max_tokens": 12, "temperature": 0, **more}
    return server.post("/v1/completions", body)


def resident(server):
    return [m["name"] for m in server.get("/api/ps").json()["models"]]


def test_models_are_listed_with_what_they_are_and_broken_ones_left_out(serve):
    with serve() as server:
        tags = server.get("/api/tags").json()["models"]
        assert sorted(m["name"] for m in tags) == sorted(MODELS)
        assert {m["details"]["family"] for m in tags} == set(MODELS)
        assert resident(server) == [] and children_of(server.process.pid) == []
        ids = [m["id"] for m in server.get("/v1/models").json()["data"]]
        assert sorted(ids) == sorted(MODELS)


def test_a_model_loads_when_it_is_asked_for_and_another_takes_its_place(serve):
    with serve(env={"SHOAL_ENGINE_MIN_RESIDENCY": "0s"}) as server:
        first = complete(server, "llama")
        assert first.status == 200, first.body
        pid = server.child()
        assert resident(server) == ["llama"]
        assert complete(server, "qwen2.gguf").status == 200
        assert resident(server) == ["qwen2"]
        assert not is_alive(pid)
        again = complete(server, "llama")
        assert again.json()["choices"] == first.json()["choices"]


def test_a_model_on_the_cpu_takes_nothing_on_a_gpu(serve):
    with serve("-model", "llama", "-backend", "cpu") as server:
        row, = server.get("/api/ps").json()["models"]
        assert row["size_vram"] == 0 and row["size"] > 0


def test_a_model_given_by_its_path_has_one_name_with_and_without_latest(serve, tmp_path):
    path = tmp_path / "mine.gguf"  # a file of its own: one of a store would have the store's name
    shutil.copy(os.path.join(ROOT, "build", "tiny", "llama.gguf"), path)
    with serve(str(path), env={"SHOAL_ENGINE_MIN_RESIDENCY": "0s"}) as server:
        pid = wait_until(lambda: resident(server) == ["mine"] and server.child())
        for name in ("mine", "mine:latest", "mine.gguf"):
            assert complete(server, name).status == 200
        assert resident(server) == ["mine"] and server.child() == pid


def test_an_unknown_model_is_404_with_its_neighbours_and_a_broken_one_500(serve):
    with serve() as server:
        r = complete(server, "lama")
        assert r.status == 404 and r.json()["error"]["code"] == "model_not_found"
        assert "near: llama" in r.json()["error"]["message"]
        r = complete(server, "broken")
        assert r.status == 500 and r.json()["error"]["code"] == "load_failed"
        assert complete(server, "llama").status == 200


def test_requests_of_three_models_at_once_are_all_served_by_grouping_them(serve):
    with serve(env={"SHOAL_ENGINE_MIN_RESIDENCY": "0s"}) as server:
        order = [MODELS["ABC".index(c)] for c in "ABAACABCBACBAC"]
        with concurrent.futures.ThreadPoolExecutor(len(order)) as pool:
            replies = list(pool.map(lambda m: (m, complete(server, m)), order))
        texts = {}
        for model, r in replies:
            assert r.status == 200, r.body
            texts.setdefault(model, set()).add(r.json()["choices"][0]["text"])
        assert all(len(t) == 1 for t in texts.values())


def test_two_residents_and_one_is_killed(serve):
    with serve("-model", "llama", env={"SHOAL_ENGINE_RESIDENT": "2"}) as server:
        assert complete(server, "qwen2").status == 200
        assert sorted(resident(server)) == ["llama", "qwen2"]
        for pid in children_of(server.process.pid):
            os.kill(pid, signal.SIGKILL)
        assert complete(server, "llama").status == 200
        assert complete(server, "qwen2").status == 200


def test_an_idle_model_is_unloaded_and_a_request_may_say_when(serve):
    with serve("-keepalive", "300ms") as server:
        assert complete(server, "llama").status == 200
        pid = server.child()
        wait_until(lambda: resident(server) == [], 20)
        assert not is_alive(pid)
        r = server.post("/api/generate", {"model": "llama", "keep_alive": -1})
        assert r.status == 200 and r.json()["done_reason"] == "load"
        pid = server.child()
        r = server.post("/api/generate", {"model": "llama", "keep_alive": 0})
        assert r.status == 200 and r.json()["done_reason"] == "unload"
        assert resident(server) == [] and not is_alive(pid)


# ---------------------------------------------------------------- what the kernel counts

def own_cgroup():
    """(folder, file that holds the counter, name of private memory in it) of a group of our own;
    None where this user may make none."""
    for root, name in (("/sys/fs/cgroup/memory", "rss"), ("/sys/fs/cgroup", "anon")):
        path = os.path.join(root, f"shoal_test_{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        if os.path.exists(os.path.join(path, "memory.stat")):
            return path, os.path.join(path, "memory.stat"), name
        os.rmdir(path)
    return None


def counted(group):
    with open(group[1], encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.split()[0] == group[2])


def test_an_unload_gives_back_what_the_kernel_had_counted(home):
    store = os.path.join(home, ".shoal", "models")
    os.makedirs(store)
    os.symlink(REAL, os.path.join(store, "smol.gguf"))
    group = own_cgroup()
    try:
        with serving(home) as server:
            if group:
                with open(os.path.join(group[0], "cgroup.procs"), "w", encoding="ascii") as f:
                    f.write(str(server.process.pid))
            before = counted(group) if group else 0
            for _ in range(3):
                load = server.post("/api/generate", {"model": "smol", "keep_alive": -1})
                assert load.json()["done_reason"] == "load", load.body
                child = server.child()
                if group:
                    assert counted(group) - before > os.path.getsize(REAL) / 2
                gone = server.post("/api/generate", {"model": "smol", "keep_alive": 0})
                assert gone.json()["done_reason"] == "unload"
                assert not is_alive(child)  # at once: the answer waited for it
                if group:
                    assert counted(group) - before < 16 << 20
    finally:
        if group:
            wait_until(lambda: not open(os.path.join(group[0], "cgroup.procs"),
                                        encoding="ascii").read().strip())
            os.rmdir(group[0])
