"""A session as a tool of a language model: the definition that its API takes, and the answer to a call.

    tool = SessionTool(host.session("bash"))
    tools = [tool.anthropic()]      # Anthropic Messages API, and what follows its schema
    tools = [tool.openai()]         # OpenAI Chat Completions; tool.openai_response() for Responses
    tools = [tool.langchain()]      # LangChain and LangGraph

`AsyncSessionTool` is the same for an `AsyncSession`. Other frameworks take a function: pass
`tool.run`, which has a docstring and type hints.
"""

import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple, Union

from .errors import HostError
from .values import Output, Result

if TYPE_CHECKING:
    from .aio import AsyncSession
    from .host import Session

# Characters of output that a model gets for one call; the middle is cut.
LONGEST = 30_000
DESCRIPTION = (
    "Run code in a persistent session. Directory, variables and background jobs stay between calls. "
    "Returns the output and how the code ended."
)
Arguments = Union[str, Mapping[str, Any]]


class ToolDefinition:
    """How a tool is described to a model."""

    def __init__(self, name: str, description: str) -> None:
        self.name, self.description = name, description

    def schema(self) -> Dict[str, Any]:
        """The JSON schema of the arguments."""
        limit = {"type": "integer", "minimum": 1, "description": "Milliseconds until it is interrupted (60000)"}
        code = {"type": "string", "description": "Code to run; may have several lines"}
        return {"type": "object", "properties": {"code": code, "timeout_ms": limit}, "required": ["code"]}

    def anthropic(self) -> Dict[str, Any]:
        return {"name": self.name, "description": self.description, "input_schema": self.schema()}

    def openai(self) -> Dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": self.schema()}
        return {"type": "function", "function": function}

    def openai_response(self) -> Dict[str, Any]:
        return {"type": "function", **self.openai()["function"]}


class SessionTool(ToolDefinition):
    """A tool that runs code in one session. The caller owns the session and closes it."""

    def __init__(
        self, session: "Session", name: str = "run", description: str = DESCRIPTION, longest: int = LONGEST
    ) -> None:
        super().__init__(name, description)
        self.session, self._longest = session, longest

    def run(self, code: str, timeout_ms: Optional[int] = None) -> str:
        """Run code in a persistent session and return its output and how it ended."""
        return describe(self.session.run(code, timeout_ms=timeout_ms), self._longest)

    def call(self, arguments: Arguments) -> str:
        """Runs a call of a model; `arguments` are an object, or its JSON. Raises ValueError if they do
        not fit the schema, and HostError if the session did not take the code."""
        return self.run(*_read(arguments))

    def anthropic_result(self, block: Any) -> Dict[str, Any]:
        """Answers a `tool_use` block with a `tool_result` block."""
        return _anthropic_answer(block, *self._answer(_get(block, "input")))

    def openai_result(self, call: Any) -> Dict[str, Any]:
        """Answers a tool call of Chat Completions with a message."""
        return _openai_answer(call, *self._answer(_get(_get(call, "function"), "arguments")))

    def openai_response_result(self, call: Any) -> Dict[str, Any]:
        """Answers a `function_call` item of Responses with its output item."""
        return _response_answer(call, *self._answer(_get(call, "arguments")))

    def langchain(self) -> Any:
        """The tool of LangChain; needs the package langchain-core."""
        from langchain_core.tools import StructuredTool

        def run(code: str, timeout_ms: Optional[int] = None) -> str:
            return self._answer({"code": code, "timeout_ms": timeout_ms})[0]

        return StructuredTool.from_function(run, name=self.name, description=self.description, args_schema=self.schema())

    def _answer(self, arguments: Any) -> Tuple[str, bool]:
        """The text for the model, and whether it is an error. A model can react to both."""
        try:
            return self.call(arguments), False
        except (HostError, ValueError) as error:
            return f"error: {error}", True


class AsyncSessionTool(ToolDefinition):
    """The same for asyncio. Cancelling a task that waits for an answer interrupts the code."""

    def __init__(
        self, session: "AsyncSession", name: str = "run", description: str = DESCRIPTION, longest: int = LONGEST
    ) -> None:
        super().__init__(name, description)
        self.session, self._longest = session, longest

    async def run(self, code: str, timeout_ms: Optional[int] = None) -> str:
        """Run code in a persistent session and return its output and how it ended."""
        return describe(await self.session.run(code, timeout_ms=timeout_ms), self._longest)

    async def call(self, arguments: Arguments) -> str:
        """Runs a call of a model, as `SessionTool.call`."""
        return await self.run(*_read(arguments))

    async def anthropic_result(self, block: Any) -> Dict[str, Any]:
        """Answers a `tool_use` block with a `tool_result` block."""
        return _anthropic_answer(block, *await self._answer(_get(block, "input")))

    async def openai_result(self, call: Any) -> Dict[str, Any]:
        """Answers a tool call of Chat Completions with a message."""
        return _openai_answer(call, *await self._answer(_get(_get(call, "function"), "arguments")))

    async def openai_response_result(self, call: Any) -> Dict[str, Any]:
        """Answers a `function_call` item of Responses with its output item."""
        return _response_answer(call, *await self._answer(_get(call, "arguments")))

    def langchain(self) -> Any:
        """The tool of LangChain, for `ainvoke`; needs the package langchain-core."""
        from langchain_core.tools import StructuredTool

        async def run(code: str, timeout_ms: Optional[int] = None) -> str:
            return (await self._answer({"code": code, "timeout_ms": timeout_ms}))[0]

        return StructuredTool.from_function(
            coroutine=run, name=self.name, description=self.description, args_schema=self.schema()
        )

    async def _answer(self, arguments: Any) -> Tuple[str, bool]:
        try:
            return await self.call(arguments), False
        except (HostError, ValueError) as error:
            return f"error: {error}", True


def _read(arguments: Arguments) -> Tuple[str, Optional[int]]:
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(given, Mapping) or not isinstance(given.get("code"), str):
        raise ValueError("the arguments must be an object with a string `code`")
    limit = given.get("timeout_ms")
    return given["code"], None if limit is None else int(limit)


def _anthropic_answer(block: Any, content: str, is_error: bool) -> Dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": _get(block, "id"), "content": content, "is_error": is_error}


def _openai_answer(call: Any, content: str, _is_error: bool) -> Dict[str, Any]:
    return {"role": "tool", "tool_call_id": _get(call, "id"), "content": content}


def _response_answer(call: Any, content: str, _is_error: bool) -> Dict[str, Any]:
    return {"type": "function_call_output", "call_id": _get(call, "call_id"), "output": content}


def describe(result: Result, longest: int = LONGEST) -> str:
    """A result as text for a model."""
    parts = [_cut(result.stdout, longest)]
    if result.stderr is not None and result.stderr.text.strip():
        parts.append("stderr:\n" + _cut(result.stderr, longest))
    if result.earlier is not None and result.earlier.text.strip():
        parts.append("output of earlier commands:\n" + _cut(result.earlier, longest))
    ended = f"[{result.how}" + ("" if result.status is None else f" {result.status}") + "]"
    if result.was_reset:
        ended += " [the interpreter was restarted: variables are lost]"
    return "\n".join([*(part.rstrip("\n") for part in parts if part), ended])


def _cut(output: Output, longest: int) -> str:
    text = output.text
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _get(thing: Any, name: str) -> Any:
    """A field of an object, or of the same as a dictionary."""
    return thing[name] if isinstance(thing, Mapping) else getattr(thing, name)
