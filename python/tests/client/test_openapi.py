"""The client against the OpenAPI document of the program: paths, fields and operations."""

import dataclasses
import inspect
import json
import subprocess

import pytest

from fdguard import AsyncHost, AsyncScope, AsyncSession, Host, Limits, Pty, Repl, Scope, Session, requests, values
from fdguard.host import _Tie

# Operation of the document -> the methods that use it.
METHODS = {
    "metrics": Host.metrics,
    "archive": Host.archive,
    "list_calls": Host.calls,
    "call": Host.call,
    "abort_call": Host.abort_call,
    "open_client": _Tie.__init__,
    "attach_client": _Tie.__init__,
    "end_client": _Tie.close,
    "health": Host.health,
    "openapi": Host.openapi,
    "list_scopes": Host.scopes,
    "open_scope": Host.scope,
    "get_scope": Scope.view,
    "close_scope": Scope.close,
    "add_resource": Scope.add_program,
    "list_sessions": Host.sessions,
    "open_session": Host.session,
    "get_session": Session.info,
    "close_session": Session.close,
    "exec": Session.run,
    "interrupt_session": Session.interrupt,
    "reset_session": Session.reset,
    "get_ticket": Host.ticket,
}
# Operations without a method, and why.
WITHOUT = {"renew_client": "the open connection of attach_client renews the lease"}

# Each request with every field, and the schema of its body.
REQUESTS = {
    "open_session": (
        requests.open_session(Repl(["x"], "y"), Pty(), "f", {"a": "b"}, Limits(1, 2, 3, 4), 5, 6, "c"),
        "NewSession",
    ),
    "exec": (requests.run("i", "code", 1), "NewExec"),
    "open_scope": (requests.open_scope("n", "r", "a", "c"), "NewScope"),
    "open_client": (requests.open_client("n", 1), "NewClient"),
    "archive": (requests.archive(["f"], "t", 1), "NewArchive"),
    "call": (requests.call("u", "m", {"a": "b"}, "b", "c", 1), "NewCall"),
    "add_resource": (requests.add_program("s", ["c"], "l", {"a": "b"}, "main"), "NewResourceProgram"),
    "list_sessions": (requests.list_sessions(), None),
    "get_session": (requests.get_session("i"), None),
    "interrupt_session": (requests.interrupt_session("i"), None),
    "reset_session": (requests.reset_session("i"), None),
    "close_session": (requests.close_session("i"), None),
    "list_scopes": (requests.list_scopes(), None),
    "get_scope": (requests.get_scope("i"), None),
    "close_scope": (requests.close_scope("i"), None),
    "get_ticket": (requests.get_ticket("i"), None),
    "list_calls": (requests.list_calls(), None),
    "abort_call": (requests.abort_call("i"), None),
    "attach_client": (requests.attach_client("i"), None),
    "end_client": (requests.end_client("i"), None),
    "health": (requests.health(), None),
    "metrics": (requests.metrics(), None),
    "openapi": (requests.openapi(), None),
}
RESOURCES = {
    "NewResourceSession": requests.add_session("s", "i", "main", "lent"),
    "NewResourceProcess": requests.add_process("s", 1, "main", "lent"),
    "NewResourceFile": requests.add_file("s", "p", "keep"),
    "NewResourceDirectory": requests.add_directory("s", "n"),
}


@pytest.fixture(scope="module")
def document():
    from fdguard.private_host import find_program

    return json.loads(subprocess.run([find_program(), "host", "--openapi"], capture_output=True, check=True).stdout)


@pytest.fixture(scope="module")
def operations(document):
    return {
        one["operationId"]: (method.upper(), path, one)
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    }


def resolve(document, schema):
    while "$ref" in schema and "properties" not in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def branches(document, schema):
    """The objects that a schema may be."""
    schema = resolve(document, schema)
    found = [resolve(document, one) for key in ("oneOf", "anyOf") for one in schema.get(key, [])]
    return [schema, *found]


def fields_of(document, schema):
    """All fields that a schema knows, and those that are always there and not null."""
    names, sure = {}, None
    for one in branches(document, schema):
        if "properties" not in one:
            continue
        here = dict(one["properties"])
        if "$ref" in one:
            here.update(resolve(document, {"$ref": one["$ref"]})["properties"])
        if not set(here) - {"schema"}:
            continue
        required = set(one.get("required", ())) & {name for name in here if not may_be_null(document, here[name])}
        names.update(here)
        sure = required if sure is None else sure & required
    return names, sure or set()


def may_be_null(document, schema):
    if schema is True or not schema or set(schema) == {"description"}:
        return True
    kinds = schema.get("type")
    return kinds == "null" or "null" in (kinds or ()) or any(may_be_null(document, one) for one in schema.get("anyOf", ()))


def test_every_operation_has_a_method_or_a_reason(operations):
    assert set(METHODS) | set(WITHOUT) == set(operations)
    assert set(REQUESTS) == set(METHODS)


def test_every_request_is_one_of_the_document(operations):
    for name, (request, _) in REQUESTS.items():
        method, path, operation = operations[name]
        wanted = path.replace("{id}", "s" if name == "add_resource" else "i")
        assert (request.method, request.path) == (method, wanted)
        assert (request.body is not None) == ("requestBody" in operation), name
        answers = [kind for code, one in operation["responses"].items() if code < "300" for kind in one["content"]]
        assert request.accept in answers, name


def body_fits(document, body, schema, where):
    """The body has exactly the fields of the schema, on all levels."""
    schema = next((one for one in branches(document, schema) if "properties" in one), None)
    if schema is None or not isinstance(body, dict):
        return
    assert set(body) == set(schema["properties"]), where
    for name, value in body.items():
        candidates = [one for one in branches(document, schema["properties"][name]) if "properties" in one]
        if isinstance(value, dict) and candidates:
            fitting = [one for one in candidates if set(one["properties"]) == set(value)]
            assert fitting, f"{where}.{name}"
            body_fits(document, value, fitting[0], f"{where}.{name}")


def test_every_body_has_the_fields_of_its_schema(document):
    bodies = {schema: request.body for request, schema in REQUESTS.values() if schema}
    bodies.update({schema: request.body for schema, request in RESOURCES.items()})
    for schema, body in bodies.items():
        body_fits(document, body, {"$ref": f"#/components/schemas/{schema}"}, schema)


@pytest.mark.parametrize("kind", values.DOCUMENTS, ids=lambda kind: kind.__name__)
def test_every_answer_has_the_fields_of_its_schema(document, operations, kind):
    if kind.SOURCE in document["components"]["schemas"]:
        schema = document["components"]["schemas"][kind.SOURCE]
    else:
        answers = operations[kind.SOURCE][2]["responses"]
        schema = next(answers[code]["content"]["application/json"]["schema"] for code in ("200", "201") if code in answers)
    names, sure = fields_of(document, schema)
    own = {one.name for one in dataclasses.fields(kind)}
    assert own == set(names) - {"schema"}
    needed = {one.name for one in dataclasses.fields(kind) if not is_optional(kind, one.name)}
    assert needed <= sure | {"archive"}, "the host may leave these out, or send null"


def is_optional(kind, name):
    return values._is_optional(values.get_type_hints(kind)[name])


@pytest.mark.parametrize("pair", [(Host, AsyncHost), (Session, AsyncSession), (Scope, AsyncScope)])
def test_both_clients_have_the_same_methods(pair):
    def public(kind):
        return {name: one for name, one in vars(kind).items() if not name.startswith("_") and callable(one)}

    blocking, asynchronous = map(public, pair)
    assert set(asynchronous) - {"start"} == set(blocking)
    for name, one in blocking.items():
        assert list(inspect.signature(one).parameters) == list(inspect.signature(asynchronous[name]).parameters), name
