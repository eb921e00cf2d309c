#!/usr/bin/env python3
"""What the client libraries of OpenAI and Ollama send: calls against a server that only listens.

    build/venv/bin/python tests/golden/agents/make_sdk.py

openai 3.57.0, ollama 0.6.3 (tests/requirements.txt). Rows are {"path", "body"}; the bodies as they
came, the model's name "llama". `shoal doctor` sends them again (tools/make_doctor.py).
"""
import http.server
import json
import os
import threading

import ollama
import openai

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
          "additionalProperties": False}
ASK = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Weather?"}]
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.",
                                         "parameters": SCHEMA}}
TURNS = [*ASK, {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function",
     "function": {"name": "weather", "arguments": "{\"city\":\"Kiel\"}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
SEEN = []


class Listener(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        SEEN.append({"path": self.path, "body": json.loads(body)})
        self.send_response(400)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


def tried(call, *args, **kw):
    try:
        got = call(*args, **kw)
        if hasattr(got, "__next__"):
            next(got)
    except (openai.OpenAIError, ollama.ResponseError):
        pass


def openai_calls(url):
    c = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
    chat, responses = c.chat.completions.create, c.responses.create
    for stream in (False, True):
        tried(chat, model="llama", messages=ASK, stream=stream)
        tried(chat, model="llama", messages=TURNS, tools=[TOOL], stream=stream, temperature=0.2)
        tried(responses, model="llama", input="Weather?", instructions="Be brief.", stream=stream)
    tried(chat, model="llama", messages=ASK, stream=True, max_completion_tokens=500, seed=1,
          stream_options={"include_usage": True}, top_p=0.9, reasoning_effort="low")
    tried(responses, model="llama", stream=True, input=[{"role": "user", "content": "Weather?"}],
          tools=[{"type": "function", "name": "weather", "description": "The weather.",
                  "parameters": SCHEMA, "strict": True}], parallel_tool_calls=False)


def ollama_calls(url):
    c = ollama.Client(host=url)
    turns = [*ASK, {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "weather", "arguments": {"city": "Kiel"}}}]},
        {"role": "tool", "content": "rain", "tool_name": "weather"}]
    for stream in (False, True):
        tried(c.chat, model="llama", messages=ASK, stream=stream)
        tried(c.chat, model="llama", messages=turns, tools=[TOOL], stream=stream, think=False)
    tried(c.chat, model="llama", messages=ASK, stream=True, keep_alive="5m",
          options={"temperature": 0.2, "num_ctx": 4096, "num_predict": 500})


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, calls in (("openai_sdk", openai_calls), ("ollama_sdk", ollama_calls)):
        SEEN.clear()
        calls(f"http://127.0.0.1:{server.server_address[1]}")
        with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(SEEN, f, indent=1, ensure_ascii=True)
            f.write("\n")


if __name__ == "__main__":
    main()
