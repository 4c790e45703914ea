"""Hosts for the tests of the client: the real program, private or listening on a port."""

import pytest
from processes import Running

from fdguard import Host


@pytest.fixture
def host(program, tmp_path):
    with Host(program=program, options=["--root", str(tmp_path)]) as host:
        yield host


@pytest.fixture
def shell(host):
    with host.session("bash", channel="pipes") as shell:
        yield shell


@pytest.fixture
def running(program, tmp_path):
    running = Running(program, tmp_path)
    yield running
    running.end()
