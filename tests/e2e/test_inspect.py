"""`shoal inspect`, docs/BEHAVIOUR.md 2.2, on the tiny models of `make tiny`."""
import json
import os
import struct

import gguf
import pytest

from conftest import ROOT

TINY = os.path.join(ROOT, "build", "tiny")
FAMILIES = sorted(name[:-4] for name in os.listdir(os.path.join(ROOT, "tests/golden/tiny"))
                  if name.endswith(".bin") and not name.endswith("-mixed.bin"))


def tiny(name):
    return os.path.join(TINY, name + ".gguf")


def facts(shoal, view, *args):
    done = shoal("inspect", view, "-json", *args)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", FAMILIES)
def test_file_shows_what_the_gguf_package_reads(shoal, name):
    reader = gguf.GGUFReader(tiny(name))
    got = facts(shoal, "file", tiny(name))
    wanted = [(t.name, t.tensor_type.name, [int(d) for d in t.shape], int(t.n_bytes),
               int(t.data_offset)) for t in reader.tensors]
    assert [(t["name"], t["type"], t["shape"], t["size"], t["offset"]) for t in got["tensors"]] \
        == wanted
    keys = [k for k in reader.fields if not k.startswith("GGUF.")]
    assert [k["key"] for k in got["metadata"]] == keys
    assert got["validation"] == {"header": "ok", "tensors": "ok", "vocabulary": "ok"}
    done = shoal("inspect", "file", tiny(name))
    assert (done.returncode, done.stderr) == (0, "")
    for text in (got["architecture"], wanted[0][0], "tokenizer.ggml.tokens"):
        assert text in done.stdout


@pytest.mark.parametrize("name", FAMILIES)
def test_plan_shows_every_op_and_weight(shoal, name):
    got = facts(shoal, "plan", tiny(name))
    assert len(got["ops"]) > 10 * got["layers"] / 2
    names = {w["name"] for w in got["weights"]}
    assert names == {t.name for t in gguf.GGUFReader(tiny(name)).tensors}
    assert got["weight_bytes"] >= sum(w["size"] for w in got["weights"])
    assert got["kv_per_token"] > 0 and got["scratch"] > 0
    done = shoal("inspect", "plan", tiny(name))
    assert (done.returncode, done.stderr) == (0, "")
    for op in got["ops"]:
        assert op in done.stdout


def test_tokens_shows_ids_pieces_and_the_round_trip(shoal, tmp_path):
    done = shoal("inspect", "tokens", tiny("llama"), "the <|im_end|>")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].split() == ["257", "normal", '"the"']
    assert done.stdout.endswith("tokens, round trip exact\n")
    assert "control" not in done.stdout
    special = facts(shoal, "tokens", tiny("llama"), "the <|im_end|>", "-special")
    assert special["tokens"][-1]["kind"] == "control" and special["differs_at"] is None
    path = tmp_path / "text"
    path.write_bytes(b"a\xff\x1b")
    got = facts(shoal, "tokens", tiny("llama"), "-f", str(path))
    assert got["differs_at"] == 1  # a broken byte is shown as U+FFFD
    assert "\x1b" not in shoal("inspect", "tokens", tiny("llama"), "-f", str(path)).stdout
    assert "0 tokens, round trip exact" in shoal("inspect", "tokens", tiny("llama"), "").stdout


def test_a_file_that_cannot_be_loaded_exits_1_with_its_reason(shoal, tmp_path):
    data = open(tiny("llama"), "rb").read()
    path = tmp_path / "m.gguf"
    path.write_bytes(data[:len(data) - 5000])
    done = shoal("inspect", "file", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("shoal: m.gguf: ") and done.stderr.count("\n") == 1
    # Another architecture of the same length: the file is sound, but nobody can run it.
    five = struct.pack("<Q", 5)
    path.write_bytes(data.replace(five + b"llama", five + b"lamma", 1))
    done = shoal("inspect", "file", str(path))
    assert done.returncode == 1
    assert "architecture  lamma (not supported)" in done.stdout
    assert "tensors     m.gguf: architecture 'lamma' is not supported" in done.stdout
    assert shoal("inspect", "plan", str(path)).stderr.startswith("shoal: ")


def test_views_and_flags_that_do_not_fit_are_refused(shoal):
    for args, text in [
            (["frob"], 'inspect: unknown view "frob"; see `shoal help inspect`'),
            (["cache", "x"], "inspect cache: unexpected argument \"x\""),
            (["file"], "inspect file: MODEL missing; see `shoal help inspect`"),
            (["file", "a", "b"], 'inspect file: unexpected argument "b"'),
            (["file", "a", "-special"], "inspect file: -special has no meaning here"),
            (["file", "a", "-split", "3"], "inspect file: -split has no meaning here"),
            (["output"], "inspect output: either MODEL or -format F"),
            (["tokens", tiny("llama")], "inspect tokens: TEXT or -f FILE missing")]:
        done = shoal("inspect", *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"shoal: {text}\n"
    done = shoal("inspect", "file", "no-such-model")
    assert done.returncode == 1
    assert done.stderr == 'shoal: no model "no-such-model": there are no models yet\n'
    done = shoal("inspect", "file", "/no/such/file.gguf")
    assert done.returncode == 1
    assert done.stderr.startswith('shoal: no model or file "/no/such/file.gguf": ')


def request(tmp_path, **body):
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"model": "x", **body}))
    return str(path)


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the <|im_end|>\n"}]
CHATML = [("template", "<|im_start|>system\n"), ("content", "Be brief."),
          ("template", "<|im_end|>\n<|im_start|>user\n"), ("content", "the <|im_end|>\n"),
          ("template", "<|im_end|>\n<|im_start|>assistant\n")]


def test_prompt_shows_the_text_with_the_origin_of_every_byte(shoal, tmp_path):
    path = request(tmp_path, messages=CHAT)
    got = facts(shoal, "prompt", tiny("llama"), "-f", path, "-ids")
    assert got["text"] == "".join(text for _, text in CHATML)
    assert [(s["origin"], s["text"]) for s in got["spans"]] == CHATML
    assert [s["message"] for s in got["spans"] if s["origin"] == "content"] == [0, 1]
    # Control tokens come from the template alone: six, though the text has "<|im_end|>" once more.
    whole = facts(shoal, "tokens", tiny("llama"), got["text"], "-special")["tokens"]
    control = [t["id"] for t in whole if t["kind"] == "control"]
    assert len(control) == 6
    assert [i for i in got["ids"] if i in control] == control[:3] + control[4:]
    assert got["tokens"] == len(got["ids"])


def test_prompt_marks_control_tokens_that_the_template_wrote(shoal, tmp_path):
    path = request(tmp_path, messages=CHAT)
    done = shoal("inspect", "prompt", "-f", path, tiny("llama"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "template              ⟦<|im_start|>⟧system\\n"
    assert lines[3] == "content 1.0           the <|im_end|>\\n"
    assert lines[5].endswith(" tokens") and len(lines) == 6
    with_ids = shoal("inspect", "prompt", "-ids", "-f", path, tiny("llama")).stdout.splitlines()
    assert with_ids[5].endswith('"<|im_start|>"  control')


def test_prompt_refuses_what_is_no_request(shoal, tmp_path):
    for args, code in [([], 2), (["-special", "-f", "x"], 2), (["-f", "/nowhere"], 1),
                       (["-f", request(tmp_path)], 1)]:
        done = shoal("inspect", "prompt", tiny("llama"), *args)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("shoal: ") and done.stderr.count("\n") == 1
    (tmp_path / "request.json").write_text('{"messages": [}')
    done = shoal("inspect", "prompt", tiny("llama"), "-f", str(tmp_path / "request.json"))
    assert (done.returncode, done.stdout) == (1, "") and "messages" in done.stderr


def events(shoal, text, *args):
    done = shoal("inspect", "output", *args, stdin=text.encode())
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def joined(found):
    """What a client has in the end: text of each kind, calls."""
    out = {"reasoning": "", "content": "", "calls": []}
    for e in found:
        if e["event"] in ("reasoning", "content"):
            out[e["event"]] += e["text"]
        elif e["event"] == "call_begin":
            assert e["index"] == len(out["calls"])
            out["calls"].append([e["name"], "", False])
        elif e["event"] == "call_args":
            out["calls"][e["index"]][1] += e["args"]
        elif e["event"] == "call_end":
            out["calls"][e["index"]][2] = True
    return out


REPLY = ('<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{"name": "get_weather", "arguments": '
         '{"city": "Z\u00fcrich"}}\n</tool_call>')


def test_output_shows_the_events_of_a_reply_whatever_the_pieces(shoal):
    for split in ("0", "1", "2", "7"):
        found = events(shoal, REPLY, "-format", "hermes+think", "-split", split)
        assert found[-1] == {"event": "done", "reason": "tool_calls", "calls": 1}
        assert joined(found) == {"reasoning": "hm", "content": "Let me see.", "calls": [
            ["get_weather", '{"city": "Z\u00fcrich"}', True]]}
    assert joined(events(shoal, REPLY, tiny("llama")))["content"] == REPLY
    done = shoal("inspect", "output", "-format", "frob")
    assert done.returncode == 2
    assert done.stderr.startswith("shoal: inspect output: no format 'frob'; there are harmony ")


def test_output_types_parameters_by_the_tools_file(shoal, tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]}))
    text = ("<tool_call>\n<function=f>\n<parameter=a>\n5\n</parameter>\n<parameter=b>\n5\n"
            "</parameter>\n</function>\n</tool_call>")
    found = events(shoal, text, "-format", "function-xml", "-tools", str(path))
    assert joined(found)["calls"] == [["f", '{"a": "5", "b": 5}', True]]
    path.write_text("[{}]")
    done = shoal("inspect", "output", "-format", "hermes", "-tools", str(path))
    assert done.returncode == 1 and "tools[0]: name missing" in done.stderr
