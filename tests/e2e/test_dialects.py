"""Every dialect through its own official client, on real weights: create, stream, count, errors,
32 requests in flight. What a client's types say is what is checked; ids of CASES.md in the names.

The SDKs build their types without checking them, so each event is checked here against the type
that the SDK declares for it."""
import asyncio
import datetime
import json
import time

import anthropic
import litellm
import ollama
import openai
import pydantic
import pytest

from server import REAL, TINY, serving, wait_until

SAY = [{"role": "user", "content": "Say hello."}]
LONG = [{"role": "user", "content": "one two three four five six seven eight nine ten " * 12}]
OPTIONS = {"temperature": 0, "num_predict": 8}
FLIGHT = 32
COLD = {"temperature": 0}  # anthropic's SDK has no parameter for it any more
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # litellm's own types


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("dialects"), "-model", REAL) as server:
        yield server


@pytest.fixture(scope="module")
def oai(real):
    return openai.OpenAI(base_url=real.url + "/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def ant(real):
    return anthropic.Anthropic(base_url=real.url, api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def oll(real):
    return ollama.Client(host=real.url, timeout=60)


def checked(kind, value):
    """value against the SDK's own declaration, strictly: no field is missing or of another type."""
    if isinstance(value, pydantic.BaseModel):
        value = value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return pydantic.TypeAdapter(kind).validate_python(value)


def events(reply):
    """(name, data) of an SSE body; comments are pings and left out."""
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("text/event-stream")
    for block in reply.body.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines and lines[-1] != "data: [DONE]":
            name = lines[0][len("event: "):] if lines[0].startswith("event: ") else None
            assert lines[-1].startswith("data: ")
            yield name, json.loads(lines[-1][len("data: "):])


# ---------------------------------------------------------------- Ollama

def test_ollama_sdk_chats_streamed_and_not(real, oll):
    whole = oll.chat(model=real.model(), messages=SAY, options=OPTIONS)
    parts = list(oll.chat(model=real.model(), messages=SAY, options=OPTIONS, stream=True))
    assert whole.message.role == "assistant" and whole.message.content
    assert "".join(p.message.content for p in parts) == whole.message.content
    assert whole.done and whole.done_reason == parts[-1].done_reason == "length"
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    assert whole.eval_count == parts[-1].eval_count == 8
    for reply in (whole, parts[-1]):
        assert reply.total_duration >= reply.eval_duration > 0
        assert reply.prompt_eval_count > 8 and reply.prompt_eval_duration > 0


def test_ollama_sdk_generates_with_a_template_and_raw(real, oll):
    whole = oll.generate(model=real.model(), prompt="Say hello.", options=OPTIONS)
    chat = oll.chat(model=real.model(), messages=SAY, options=OPTIONS)
    assert whole.response == chat.message.content
    raw = oll.generate(model=real.model(), prompt="The sky is", raw=True, options=OPTIONS)
    parts = list(oll.generate(model=real.model(), prompt="The sky is", raw=True, options=OPTIONS,
                              stream=True))
    assert raw.response and raw.response != whole.response
    assert "".join(p.response for p in parts) == raw.response
    assert raw.prompt_eval_count < whole.prompt_eval_count


def test_ollama_lines_are_ndjson_of_the_sdks_types(real):
    body = {"model": real.model(), "messages": SAY, "options": OPTIONS, "logprobs": True,
            "top_logprobs": 2}
    r = real.post("/api/chat", body)
    assert r.status == 200 and r.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in r.body.decode().splitlines()]
    for line in lines:
        checked(ollama.ChatResponse, line)
    text = "".join(line["message"]["content"] for line in lines)
    tokens = [p for line in lines for p in line.get("logprobs", [])]
    assert bytes(b for p in tokens for b in p["bytes"]).decode() == text
    assert len(tokens) == 8 and all(len(p["top_logprobs"]) == 2 for p in tokens)
    assert lines[-1]["shoal"]["finish"] == "max_tokens"


def test_ollama_num_predict_0_fills_the_cache(real, oll):
    options = {"temperature": 0, "num_predict": 0}
    first = oll.chat(model=real.model(), messages=LONG, options=options)
    assert first.message.content == "" and first.eval_count == 0
    body = {"model": real.model(), "messages": LONG, "stream": False, "options": OPTIONS}
    cache = real.post("/api/chat", body).json()["shoal"]["cache"]
    assert cache["cached"] >= cache["prompt"] - 32


def test_ollama_sdk_raises_what_is_refused(real, oll):
    for call, status, words in [
            (lambda: oll.chat(model=real.model(), messages=SAY, format={"not": {}}), 400, "'not'"),
            (lambda: oll.chat(model=real.model(), messages=[{"role": "robot"}]), 400, "role"),
            (lambda: oll.chat(model=real.model(), messages=SAY, options={"top_p": 2.0}), 400,
             "options.top_p"),
            (lambda: oll.embed(model=real.model(), input="x"), 501, "/api/embed"),
            (lambda: oll.pull("x"), 501, "hub.http_pull"),
            (lambda: oll.delete("x"), 501, "hub.http_pull"),
            (lambda: oll.copy("a", "b"), 501, "/api/copy"),
            (lambda: oll.chat(model=real.model(), messages=[
                {"role": "user", "content": "word " * 9000}]), 413, "limit is")]:
        with pytest.raises(ollama.ResponseError) as e:
            call()
        assert e.value.status_code == status and words in str(e.value)


def test_thinking_asked_of_a_model_without_is_a_warning(real):
    whole = real.post("/api/chat", {"model": real.model(), "messages": SAY, "stream": False,
                                    "options": OPTIONS, "think": True}).json()
    assert whole["message"]["content"] and "thinking" not in whole["message"]
    assert any(w.startswith("thinking_unsupported") for w in whole["shoal"]["warnings"])


def test_ollama_version_answers(real):
    got = real.get("/api/version").json()
    assert got["shoal"] == real.get("/version").json()["version"] and "." in got["version"]


# ---------------------------------------------------------------- Anthropic

def ask(ant, real, **more):
    return ant.messages.create(**{"model": real.model(), "max_tokens": 8, "messages": SAY,
                                  "extra_body": COLD, **more})


def test_anthropic_sdk_creates_and_streams_the_same(real, ant):
    whole = ask(ant, real)
    with ant.messages.stream(model=real.model(), max_tokens=8, messages=SAY,
                             extra_body=COLD) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    checked(anthropic.types.Message, whole)
    assert whole.content[0].text == text == final.content[0].text
    assert whole.stop_reason == final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == whole.usage.output_tokens == 8


def test_A05_cached_tokens_stand_in_all_three_places_and_add_up(real, ant):
    count = ant.messages.count_tokens(model=real.model(), messages=LONG).input_tokens
    ask(ant, real, messages=LONG)
    whole = ask(ant, real, messages=LONG)
    body = {"model": real.model(), "max_tokens": 4, "messages": LONG, "stream": True}
    stream = dict(events(real.post("/v1/messages", body)))
    for usage in (whole.usage.model_dump(), stream["message_start"]["message"]["usage"],
                  stream["message_delta"]["usage"]):
        assert usage["cache_read_input_tokens"] > 0 and usage["cache_creation_input_tokens"] == 0
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count


def test_A06_A07_every_event_of_a_stream_is_of_its_type_and_in_order(real):
    body = {"model": real.model(), "max_tokens": 8, "messages": SAY, "stream": True}
    names = []
    for name, data in events(real.post("/v1/messages", body)):
        if name != "ping":
            checked(anthropic.types.RawMessageStreamEvent, data)
            names.append(name)
        assert data["type"] == name
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}


def test_A01_a_new_checksum_in_each_request_costs_no_prefix(real, ant):
    def body(digits):
        line = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch="
        return [{"type": "text", "text": f"{line}{digits};"},
                {"type": "text", "text": "You are a helper. " * 40}]
    ask(ant, real, system=body("fa690"))
    usage = ask(ant, real, system=body("0b3c1")).usage
    assert usage.cache_read_input_tokens >= 96 and usage.input_tokens <= 33


def test_A02_a_system_turn_behind_the_user_is_taken(real, ant):
    r = ask(ant, real, messages=[*SAY, {"role": "system", "content": "Answer in French."},
                                 {"role": "user", "content": "Now."}],
            system=[{"type": "text", "text": "You are brief.",
                     "cache_control": {"type": "ephemeral"}}])
    assert r.content and r.usage.input_tokens > 0


def test_A03_A04_histories_with_blocks_of_any_type_are_taken(real):
    history = [*SAY, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "tool_reference", "tool_name": "g"},
                {"type": "document", "source": {"type": "text", "data": "doc"}},
                {"type": "image", "source": {"type": "base64", "data": "AA=="}},
                {"type": "made_up", "text": "x"}]},
            {"type": "text", "text": "go on"}]}]
    r = real.post("/v1/messages", {"model": real.model(), "max_tokens": 4, "messages": history})
    assert r.status == 200, r.body
    assert "block_dropped" in r.headers["shoal-warning"] or "block_dropped" in r.body.decode()


def test_A18_a_stop_sequence_is_cut_off_and_named(real, ant):
    text = ask(ant, real).content[0].text
    stop = text[2:4]
    r = ask(ant, real, stop_sequences=[stop])
    assert r.stop_reason == "stop_sequence" and r.stop_sequence == stop
    assert "".join(b.text for b in r.content) == text[:text.index(stop)]


def test_anthropic_a_history_that_ends_with_the_assistant_goes_on(real, ant):
    whole = ask(ant, real)
    cut = whole.content[0].text[:3]
    r = ask(ant, real, messages=[*SAY, {"role": "assistant", "content": cut}], max_tokens=7)
    assert r.content[0].text and not r.content[0].text.startswith(cut)


def test_anthropic_sdk_raises_what_is_refused(real, ant):
    with pytest.raises(anthropic.BadRequestError) as e:
        ask(ant, real, messages=[{"role": "user", "content": "word " * 9000}])
    assert "prompt is too long: " in str(e.value) and "tokens > " in str(e.value)
    with pytest.raises(anthropic.BadRequestError) as e:
        ask(ant, real, extra_body={"top_k": -1})
    assert e.value.body["error"]["type"] == "invalid_request_error"
    assert e.value.body["request_id"] == e.value.response.headers["request-id"]
    with pytest.raises(anthropic.BadRequestError) as e:
        ask(ant, real, tools=[{"name": "f", "input_schema": {"type": "object"}}])
    assert e.value.body["error"]["code"] == "tools_unsupported"


# ---------------------------------------------------------------- OpenAI completions

def test_openai_sdk_completes_texts_and_ids(real, oai):
    r = oai.completions.create(model=real.model(), prompt=["The sky is", "One, two,"], n=2,
                               max_tokens=6, temperature=0)
    assert [c.index for c in r.choices] == [0, 1, 2, 3]
    assert r.choices[0].text == r.choices[1].text != r.choices[2].text
    assert r.usage.completion_tokens == 24
    ids = oai.completions.create(model=real.model(), prompt=[5, 6, 7], max_tokens=2)
    assert ids.usage.prompt_tokens == 3


def test_completions_stream_what_they_are(real, oai):
    ask_for = {"model": real.model(), "prompt": "The sky is", "max_tokens": 6, "temperature": 0,
               "logprobs": 2, "echo": False}
    whole = oai.completions.create(**ask_for)
    chunks = list(oai.completions.create(**ask_for, stream=True,
                                         stream_options={"include_usage": True}))
    for c in chunks[:-1]:
        assert c.object == "text_completion" and c.usage is None and len(c.choices) == 1
    said = [c.choices[0] for c in chunks if c.choices]
    assert "".join(c.text for c in said) == whole.choices[0].text
    for member in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [v for c in said if c.logprobs for v in getattr(c.logprobs, member)]
        assert joined == getattr(whole.choices[0].logprobs, member)
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage


def test_completions_echo_the_prompt(real, oai):
    r = oai.completions.create(model=real.model(), prompt="The sky is", echo=True, max_tokens=4,
                               temperature=0)
    assert r.choices[0].text.startswith("The sky is") and len(r.choices[0].text) > 10
    with pytest.raises(openai.InternalServerError) as e:
        oai.completions.create(model=real.model(), prompt="x", echo=True, logprobs=1)
    assert e.value.status_code == 501


# ---------------------------------------------------------------- OpenAI Responses

def test_responses_sdk_creates_and_streams_the_same(real, oai):
    ask_for = {"model": real.model(), "input": "Say hello.", "max_output_tokens": 8,
               "temperature": 0, "instructions": "Be brief."}
    whole = oai.responses.create(**ask_for)
    assert whole.output_text and whole.status == "incomplete"
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage.output_tokens == 8 and whole.instructions == "Be brief."
    with oai.responses.stream(**ask_for) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    assert text == whole.output_text


def test_A11_streamed_items_are_those_of_the_last_event(real):
    body = {"model": real.model(), "input": [{"role": "user", "content": "Say hello."}],
            "max_output_tokens": 8, "stream": True, "top_logprobs": 1, **COLD}
    got = list(events(real.post("/v1/responses", body)))
    for name, data in got:
        assert data["type"] == name
        checked(openai.types.responses.ResponseStreamEvent, data)
    assert [d["sequence_number"] for _, d in got] == list(range(len(got)))
    done = [d["item"] for n, d in got if n == "response.output_item.done"]
    added = [d["item"]["id"] for n, d in got if n == "response.output_item.added"]
    last = got[-1][1]["response"]
    assert last["output"] == done and [i["id"] for i in done] == added
    text = "".join(d["delta"] for n, d in got if n == "response.output_text.delta")
    assert done[0]["content"][0]["text"] == text
    tokens = done[0]["content"][0]["logprobs"]
    assert bytes(b for t in tokens for b in t["bytes"]).decode() == text


def test_A10_outputs_of_calls_are_taken_in_every_form(real, oai):
    for output in ("text", [{"type": "input_text", "text": "a"}],
                   [{"type": "input_text", "text": "a"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]):
        r = oai.responses.create(model=real.model(), max_output_tokens=4, store=False, input=[
            {"role": "user", "content": "q"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": output}])
        assert r.status in ("completed", "incomplete") and r.store is False


def test_responses_that_need_a_store_are_refused(real, oai):
    with pytest.raises(openai.BadRequestError) as e:
        oai.responses.create(model=real.model(), input="x", previous_response_id="resp_1")
    assert "not stored" in str(e.value)
    for call in (oai.responses.retrieve, oai.responses.delete):
        with pytest.raises(openai.NotFoundError):
            call("resp_1")


# ---------------------------------------------------------------- models

def test_models_are_listed_shown_loaded_and_unloaded_by_every_sdk(tmp_path):
    with serving(tmp_path, "-model", REAL) as server:
        name = server.model()
        oai = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        ant = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        oll = ollama.Client(host=server.url)
        assert name in [m.id for m in oai.models.list().data]
        assert oai.models.retrieve(name).id == name == ant.models.retrieve(name).id
        assert name in [m.id for m in ant.models.list().data]
        assert oll.generate(model=name, prompt="").done_reason == "load"
        assert name in [m.model for m in oll.list().models]
        assert name in [m.model for m in oll.ps().models]
        shown = oll.show(name)
        assert "completion" in shown.capabilities and shown.details.family == "llama"
        assert shown.modelinfo["llama.context_length"] == 8192
        assert oll.generate(model=name, prompt="", keep_alive=0).done_reason == "unload"
        assert oll.ps().models == []
        assert oll.chat(model=name, messages=SAY, options=OPTIONS).message.content
        with pytest.raises(openai.NotFoundError):
            oai.models.retrieve("no-such-model")
        with pytest.raises(ollama.ResponseError) as e:
            oll.show("no-such-model")
        assert e.value.status_code == 404


# ---------------------------------------------------------------- all of them

BODIES = {
    "/api/chat": {"messages": SAY}, "/api/generate": {"prompt": "x"},
    "/v1/chat/completions": {"messages": SAY}, "/v1/completions": {"prompt": "x"},
    "/v1/messages": {"messages": SAY, "max_tokens": 4}, "/v1/responses": {"input": "x"},
}
SHORT = {"max_tokens": 1, "max_output_tokens": 1, "options": {"num_predict": 1}}


@pytest.mark.parametrize("path", BODIES)
def test_E17_a_prompt_that_is_too_long_is_refused_with_its_size(real, path):
    text = "word " * 9000
    body = {k: [{"role": "user", "content": text}] if k == "messages" else text
            if k in ("prompt", "input") else v for k, v in BODIES[path].items()}
    for stream in (False, True):
        r = real.post(path, {"model": real.model(), **body, **SHORT, "stream": stream})
        error = r.json() if path.startswith("/api") else r.json()["error"]
        assert r.status == (413 if path.startswith("/api") else 400), r.body
        assert error["code"] == "context_length_exceeded" and error["prompt_tokens"] > 9000
        assert error["limit"] == 8192


def test_E20_num_ctx_caps_a_request_and_loads_nothing_again(real, oll):
    child = real.child()
    for num_ctx in (1024, 2048, 4096, 1024):
        r = oll.chat(model=real.model(), messages=SAY, options={**OPTIONS, "num_ctx": num_ctx})
        assert r.eval_count == 8 and r.load_duration == 0
    with pytest.raises(ollama.ResponseError) as e:
        oll.chat(model=real.model(), messages=LONG, options={"num_ctx": 32})
    assert "limit is 32" in str(e.value) and real.child() == child


def expires(server):
    """Seconds until the model leaves; None: never. Or "gone"."""
    rows = server.get("/api/ps").json()["models"]
    if not rows:
        return "gone"
    at = rows[0].get("expires_at")
    return at and datetime.datetime.fromisoformat(at).timestamp() - time.time()


@pytest.mark.parametrize("path", BODIES)
def test_E21_keep_alive_governs_the_model_on_every_dialect(tmp_path, path):
    with serving(tmp_path, "-model", TINY, "-keepalive", "3m") as server:
        def ask_to_keep(**keep):
            r = server.post(path, {"model": server.model(), **BODIES[path], **SHORT,
                                   "stream": False, **keep})
            assert r.status == 200, r.body
        ask_to_keep()
        assert 100 < expires(server) <= 181
        for value, least, most in (("10m", 500, 601), (7200, 7100, 7201)):
            ask_to_keep(shoal={"keep_alive": value})
            assert least < expires(server) <= most, value
        ask_to_keep(shoal={"keep_alive": -1})
        assert expires(server) is None
        ask_to_keep(shoal={"keep_alive": 0})
        wait_until(lambda: expires(server) == "gone")


@pytest.mark.parametrize("path", BODIES)
def test_E21_keep_alive_is_taken_by_every_dialect(real, path):
    for value in (-1, "10m", 600):
        r = real.post(path, {"model": real.model(), **BODIES[path], **SHORT, "stream": False,
                             "shoal": {"keep_alive": value}})
        assert r.status == 200 and b"unknown_field; shoal" not in r.body, r.body
    r = real.post(path, {"model": real.model(), **BODIES[path], **SHORT,
                         "shoal": {"keep_alive": "soon"}})
    assert r.status == 400 and b"shoal.keep_alive" in r.body


def test_A17_A26_all_dialects_say_the_same_for_the_same_prompt(real, oai, ant, oll):
    said = {
        oai.chat.completions.create(model=real.model(), messages=SAY, max_tokens=8, temperature=0)
        .choices[0].message.content,
        ask(ant, real).content[0].text,
        oll.chat(model=real.model(), messages=SAY, options={**OPTIONS, "repeat_penalty": 1.0})
        .message.content,
        oai.responses.create(model=real.model(), input="Say hello.", max_output_tokens=8,
                             temperature=0).output_text}
    assert len(said) == 1, said


async def flight(one):
    return await asyncio.gather(*[one(i) for i in range(FLIGHT)])


def test_32_in_flight_of_the_async_clients_are_all_answered_alike(real):
    url, model = real.url, real.model()

    async def run():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0,
                                      timeout=120) as o, \
                anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0,
                                         timeout=120) as a:
            n = ollama.AsyncClient(host=url, timeout=120)

            async def one(i):
                if i % 4 == 0:
                    r = await o.chat.completions.create(model=model, messages=SAY, max_tokens=8,
                                                        temperature=0)
                    return r.choices[0].message.content
                if i % 4 == 1:
                    r = await a.messages.create(model=model, messages=SAY, max_tokens=8,
                                                extra_body=COLD)
                    return r.content[0].text
                if i % 4 == 2:
                    options = {**OPTIONS, "repeat_penalty": 1.0}
                    return "".join([p.message.content async for p in await n.chat(
                        model=model, messages=SAY, options=options, stream=True)])
                stream = await o.responses.create(model=model, input="Say hello.", stream=True,
                                                  max_output_tokens=8, temperature=0)
                return "".join([e.delta async for e in stream
                                if e.type == "response.output_text.delta"])
            return await flight(one)
    said = asyncio.run(run())
    assert len(said) == FLIGHT and len(set(said)) == 1 and said[0], set(said)


@pytest.mark.parametrize("provider, suffix", [("openai", "/v1"), ("anthropic", ""),
                                              ("ollama_chat", ""), ("text-completion-openai",
                                                                    "/v1")])
def test_litellm_is_answered_streamed_and_not(real, provider, suffix):
    litellm.suppress_debug_info = True
    ask_for = {"model": f"{provider}/{real.model()}", "messages": SAY, "max_tokens": 8,
               "temperature": 0, "api_base": real.url + suffix, "api_key": "none",
               "num_retries": 0, "timeout": 60}
    whole = litellm.completion(**ask_for)
    text = "".join(c.choices[0].delta.content or "" for c in
                   litellm.completion(**ask_for, stream=True))
    assert whole.choices[0].message.content and text == whole.choices[0].message.content
    assert whole.usage.completion_tokens == 8


def test_litellm_reads_responses(real):
    r = litellm.responses(model=f"openai/{real.model()}", input="Say hello.", max_output_tokens=16,
                          temperature=0, api_base=real.url + "/v1", api_key="none")
    assert r.output[0].content[0].text and r.usage.output_tokens == 16


WRONG = [5, -1, 1e308, "", "x", True, [], {}, [[]], [5], [{}], [None], {"a": 1}, [{"type": 5}]]


@pytest.mark.parametrize("path", BODIES)
def test_A32_500_wrong_bodies_get_a_sentence_and_never_a_500(real, path):
    fields = ["model", "messages", "prompt", "input", "system", "options", "stop", "stream",
              "tools", "tool_choice", "thinking", "format", "keep_alive", "metadata", "include"]
    for field in fields:
        for value in WRONG:
            body = {"model": real.model(), **BODIES[path], **SHORT, field: value}
            r = real.post(path, body)
            assert r.status in (200, 400, 404, 501), (path, field, value, r.body)
            if r.status != 200:
                error = r.json()["error"]
                message = error if isinstance(error, str) else error["message"]
                assert len(message) > 8
