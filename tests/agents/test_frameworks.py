"""Agent frameworks over the scripted endpoint: each runs its own loop, calls a Python function with
the arguments that were said, and ends with the answer."""
import asyncio
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), HERE]

import agents  # noqa: E402
import openai  # noqa: E402
import pydantic_ai  # noqa: E402
import pytest  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402
from server import TINY, serving  # noqa: E402

SCRIPTED = os.path.join(ROOT, "build", "tests", "agents", "scripted")
WANT = {"city": "Zürich", "days": 2}
ANSWER = "It rains: 12 °C."
SCRIPT = {"piece": 3, "replies": [
    {"tool": "weather", "results": 0, "say": [
        {"think": "I look it up."}, {"call": {"name": "weather", "arguments": WANT}}]},
    {"tool": "weather", "results": 1, "say": [{"think": "Rain."}, {"text": ANSWER}]}]}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    home = tmp_path_factory.mktemp("frameworks")
    (home / "script.json").write_text(json.dumps(SCRIPT))
    with serving(home, "-model", TINY, binary=SCRIPTED,
                 env={"SCRIPTED_REPLIES": str(home / "script.json")}) as server:
        yield server


@pytest.mark.parametrize("kind", ["OpenAIResponsesModel", "OpenAIChatCompletionsModel"])
@pytest.mark.parametrize("streams", [False, True])
def test_openai_agents_run_their_loop(scripted, kind, streams):
    asked = []

    @agents.function_tool(strict_mode=False)
    def weather(city: str, days: int) -> str:
        """The weather of a city."""
        asked.append({"city": city, "days": days})
        return "rain"

    async def run():
        client = openai.AsyncOpenAI(base_url=scripted.url + "/v1", api_key="none", max_retries=0)
        agents.set_tracing_disabled(True)
        agent = agents.Agent(name="a", tools=[weather], model=getattr(agents, kind)(
            model=scripted.model(), openai_client=client))
        if not streams:
            return (await agents.Runner.run(agent, "How is the weather?")).final_output
        result = agents.Runner.run_streamed(agent, "How is the weather?")
        async for _ in result.stream_events():
            pass
        return result.final_output

    assert asyncio.run(run()) == ANSWER
    assert asked == [WANT]


def model_of(scripted, name):
    if name == "anthropic":
        return AnthropicModel(scripted.model(), provider=AnthropicProvider(
            base_url=scripted.url, api_key="none"))
    kind = OpenAIChatModel if name == "chat" else OpenAIResponsesModel
    return kind(scripted.model(), provider=OpenAIProvider(base_url=scripted.url + "/v1",
                                                         api_key="none"))


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_pydantic_ai_runs_its_loop(scripted, name):
    asked = []
    agent = pydantic_ai.Agent(model_of(scripted, name))

    @agent.tool_plain
    def weather(city: str, days: int) -> str:
        """The weather of a city."""
        asked.append({"city": city, "days": days})
        return "rain"

    assert agent.run_sync("How is the weather?").output == ANSWER

    async def streamed():
        async with agent.run_stream("How is the weather?") as result:
            return [text async for text in result.stream_text(debounce_by=None)]

    assert asyncio.run(streamed())[-1] == ANSWER
    assert asked == [WANT, WANT]
