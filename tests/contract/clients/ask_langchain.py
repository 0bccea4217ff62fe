"""LangChain's ChatOpenAI: several turns, tools, streams, over chat and over responses."""

import json
import sys
from typing import Any

from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

RIVER = "Tell me of the river and of all the towns that lie on it, one after the other. " * 4


def look_up(answer: str) -> str:
    """Looks a town up."""
    return f"a town of {len(answer)} people"


LOOK_UP: Any = tool(look_up)


def said(model: Any, history: list[Any], stream: bool) -> Any:
    """One turn's message, as the package gives it."""
    if not stream:
        return model.invoke(history)
    whole: AIMessageChunk | None = None
    for chunk in model.stream(history):
        whole = chunk if whole is None else whole + chunk
    return whole


def talk(model: Any, name: str, stream: bool) -> list[str]:
    history: list[Any] = []
    for turn in range(3):
        history.append(HumanMessage(f"talk {name} {turn} {RIVER}"))
        history.append(said(model, history, stream))
    return [message.text for message in history[1::2]]


def tools(model: Any, name: str, stream: bool) -> list[Any]:
    able = model.bind_tools([LOOK_UP])
    history: list[Any] = [HumanMessage(f"tools {name} {RIVER} #call")]
    history.append(said(able, history, stream))
    (call,) = history[-1].tool_calls
    history.append(ToolMessage(LOOK_UP.invoke(call["args"]), tool_call_id=call["id"]))
    history.append(said(able, history, stream))
    history.append(HumanMessage("And what else?"))
    history.append(said(able, history, stream))
    return [call["args"], history[3].text, history[5].text]


def everything(url: str) -> list[Any]:
    found = []
    for responses in (False, True):
        model = ChatOpenAI(
            model="toy",
            base_url=url + "/v1",
            api_key="none",
            max_retries=0,
            use_responses_api=responses,
            # Else it takes what the service has stored for a history.
            **({"use_previous_response_id": False} if responses else {}),
        )
        for stream in (False, True):
            name = f"{responses} {stream}"
            found += [talk(model, name, stream), tools(model, name, stream)]
    return found


json.dump([everything(url) for url in sys.argv[1:]], sys.stdout)
