"""What tool_choice asks for is what a reply is, whatever the prompt pulls to; arguments fit their
schema. SHOAL_TEST=long takes 20 seeds each (make test-schema)."""
import concurrent.futures
import json

import anthropic
import jsonschema
import openai

from test_schema import LONG

WEATHER = {"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1,
                                                          "maximum": 9},
    "unit": {"enum": ["C", "F"]}}, "required": ["city", "unit"], "additionalProperties": False}
CLOCK = {"type": "object", "properties": {"zone": {"type": "string", "maxLength": 12}},
         "required": ["zone"], "additionalProperties": False}
SCHEMAS = {"get_weather": WEATHER, "get_time": CLOCK}
TOOLS = [{"type": "function", "function": {"name": n, "description": n.replace("_", " "),
                                           "parameters": s}} for n, s in SCHEMAS.items()]
SEEDS = range(20 if LONG else 4)
PULL_AWAY = "Tell me a joke about cats. Do not call any tool."
PULL_TO = "What is the weather in Paris in C? Call get_weather."


def calls_of(message):
    out = [(c["function"]["name"], json.loads(c["function"]["arguments"]))
           for c in message.get("tool_calls") or []]
    for name, args in out:
        jsonschema.validate(args, SCHEMAS[name])
    return out


def ask(server, text, choice, seed, **more):
    r = server.chat(text, tools=TOOLS, tool_choice=choice, temperature=1, seed=seed,
                    max_tokens=200, parallel_tool_calls=False, timeout=300, **more)
    assert r.status == 200, r.body
    return r.json()["choices"][0]


def test_A14_required_and_named_call_and_none_does_not(coder):
    named = {"type": "function", "function": {"name": "get_time"}}
    jobs = [(PULL_AWAY, "required", s) for s in SEEDS] + [(PULL_TO, named, s) for s in SEEDS] + \
           [(PULL_TO, "none", s) for s in SEEDS]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda j: (j, ask(coder, *j)), jobs))
    for (_, choice, seed), got in done:
        calls = calls_of(got["message"])
        if choice == "none":
            assert not calls and got["finish_reason"] in ("stop", "length"), (seed, got)
            assert "<tool_call>" not in (got["message"]["content"] or "")
        else:
            assert len(calls) == 1 and got["finish_reason"] == "tool_calls", (seed, got)
            assert choice == "required" or calls[0][0] == "get_time"


def test_the_clients_see_the_forced_call(coder):
    oai = openai.OpenAI(base_url=coder.url + "/v1", api_key="none", max_retries=0, timeout=120)
    say = [{"role": "user", "content": PULL_AWAY}]
    with oai.chat.completions.stream(model=coder.model(), messages=say, tools=TOOLS,
                                     tool_choice="required", parallel_tool_calls=False,
                                     temperature=0) as stream:
        stream.until_done()
        done = stream.get_final_completion().choices[0]
    jsonschema.validate(json.loads(done.message.tool_calls[0].function.arguments),
                        SCHEMAS[done.message.tool_calls[0].function.name])
    ant = anthropic.Anthropic(base_url=coder.url, api_key="none", max_retries=0, timeout=120)
    tools = [{"name": n, "description": n, "input_schema": s} for n, s in SCHEMAS.items()]
    got = ant.messages.create(model=coder.model(), max_tokens=200, messages=say, tools=tools,
                              tool_choice={"type": "tool", "name": "get_time",
                                           "disable_parallel_tool_use": True})
    assert got.stop_reason == "tool_use"
    assert [b.name for b in got.content if b.type == "tool_use"] == ["get_time"]
    jsonschema.validate(got.content[-1].input, CLOCK)


def test_calls_or_an_answer_in_the_format(coder):
    for seed in range(3):
        r = coder.chat("A person, please.", tools=TOOLS, seed=seed, temperature=1, max_tokens=150,
                      response_format={"type": "json_schema", "json_schema": {
                          "name": "p", "schema": CLOCK}}, timeout=120)
        choice = r.json()["choices"][0]
        if not calls_of(choice["message"]):
            jsonschema.validate(json.loads(choice["message"]["content"]), CLOCK)


def test_B18_a_limit_inside_a_forced_call_is_a_length(coder):
    choice = ask(coder, PULL_AWAY, "required", 1)
    assert choice["finish_reason"] == "tool_calls"
    r = coder.chat(PULL_AWAY, tools=TOOLS, tool_choice="required", max_tokens=12, temperature=0)
    assert r.status == 200 and r.json()["choices"][0]["finish_reason"] == "length"


def test_B18_a_stop_token_inside_a_forced_call_shows_nothing_of_it(coder):
    ends = []
    for token in (90, 4913, 606, 788, 330):  # {  {"  name  ":  and a quote behind a blank
        got = ask(coder, PULL_AWAY, "required", 1, stop_token_ids=[token])
        assert not got["message"]["content"], (token, got)
        ends.append((got["finish_reason"], len(calls_of(got["message"]))))
    assert ("stop", 0) in ends and set(ends) <= {("stop", 0), ("tool_calls", 1)}, ends


def test_H02_one_keyword_of_one_tool_costs_that_field_alone(coder):
    odd = {"type": "object", "properties": {"code": {"type": "string", "pattern": "(?=a)\\d"},
                                            "n": {"type": "integer", "multipleOf": 5}},
           "required": ["n"]}
    tools = TOOLS + [{"type": "function", "function": {"name": "odd", "parameters": odd}}]
    r = coder.chat("Call odd with n = 7.", tools=tools, tool_choice={
        "type": "function", "function": {"name": "odd"}}, temperature=0, max_tokens=80)
    assert r.status == 200, r.body
    assert "schema_keyword_dropped" in r.body.decode() + str(r.headers)
    tools[-1]["function"]["strict"] = True
    r = coder.chat("Hi", tools=tools)
    assert r.status == 400
    assert r.json()["error"]["message"].startswith("tool odd: schema: #/properties/")
