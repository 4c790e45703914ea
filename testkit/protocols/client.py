"""Uses the client that openapi-python-client generated: client.py DIRECTORY ADDRESS TOKEN.

DIRECTORY holds the package `fdguard_host`. Opens a session, runs a command in it, closes it.
"""

import sys

directory, address, token = sys.argv[1:]
sys.path.insert(0, directory)

from fdguard_host import AuthenticatedClient
from fdguard_host.api.health import health
from fdguard_host.api.scopes import add_resource  # Its body has forms with objects in them.
from fdguard_host.api.sessions import close_session, exec_, get_session, open_session
from fdguard_host.models import NewExec, NewSession, Problem

client = AuthenticatedClient(base_url=address, token=token, raise_on_unexpected_status=True)
assert health.sync(client=client).schema == "fdguard.health/1"
session = open_session.sync(client=client, body=NewSession.from_dict({"program": "bash", "channel": "pipes"}))
assert session.schema == "fdguard.session/1", session
done = exec_.sync(session.id, client=client, body=NewExec(code="echo hello"))
assert done.stdout.text == "hello\n" and done.outcome.how == "exited", done
receipt = close_session.sync(session.id, client=client)
assert receipt.clean is True and receipt.survivors == 0, receipt
refusal = get_session.sync("nonsense", client=client)
assert isinstance(refusal, Problem) and refusal.code == "unknown", refusal
assert add_resource.sync is not None
print("ok")
