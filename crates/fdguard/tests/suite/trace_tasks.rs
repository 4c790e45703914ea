//! Tasks, work items and threads of Python under `fdguard trace`: the line that created them is
//! named.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::skip;

use super::{CommandOutput, fdguard};

/// A library that opens a descriptor in any calling context, and keeps it.
const LIBRARY: &str = "import asyncio, os, threading
kept = []
def keep():
    kept.append(os.open('/dev/zero', os.O_RDONLY))
async def keep_soon():
    await asyncio.sleep(0)
    keep()
async def in_task():
    await asyncio.create_task(keep_soon())
async def in_tasks():
    await asyncio.gather(in_task())
def in_thread():
    thread = threading.Thread(target=keep)
    thread.start()
    thread.join()
";

/// The application: each of its lines leaves one open.
const SCRIPT: &str = "import asyncio, os, sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'site-packages'))
import library
async def main():
    await library.in_task()
    await library.in_tasks()
    await asyncio.gather(library.keep_soon())
    await asyncio.wait_for(library.keep_soon(), 60)
    await asyncio.get_running_loop().run_in_executor(None, library.keep)
    await asyncio.to_thread(library.keep)
asyncio.run(main())
pool = ThreadPoolExecutor(1)
pool.submit(library.keep).result()
pool.submit(library.keep).result()
library.in_thread()
";

/// The lines of the script that open, and their functions.
const LINES: &[(u32, &str)] = &[
    (6, "main"),
    (7, "main"),
    (8, "main"),
    (9, "main"),
    (10, "main"),
    (11, "main"),
    (14, "<module>"),
    (15, "<module>"),
    (16, "<module>"),
];

/// Pythons of pyenv, one of each version.
fn pythons() -> Vec<PathBuf> {
    let home = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".pyenv")));
    let dir = home.unwrap_or_default().join("versions");
    let mut found = Vec::new();
    for minor in 9..=13 {
        let prefix = format!("3.{minor}.");
        let mut entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        match entries.find(|one| one.file_name().to_string_lossy().starts_with(&prefix)) {
            Some(version) => found.push(version.path().join("bin/python3")),
            None => skip(&format!("no Python 3.{minor} in pyenv")),
        }
    }
    found
}

/// The report of a trace of this command in this directory.
fn report(dir: &Path, words: &[&Path]) -> String {
    let result = dir.join("result");
    let mut command = fdguard();
    command
        .current_dir(dir)
        .args(["trace", "--error-exitcode", "0", "-o"])
        .arg(&result)
        .arg("--")
        .args(words);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!((said.code, &*said.stderr), (0, ""));
    fs::read_to_string(result).unwrap()
}

#[test]
fn the_line_that_created_a_task_a_work_item_or_a_thread_is_named_in_every_version() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("app.py");
    fs::write(&script, SCRIPT).unwrap();
    fs::create_dir(dir.path().join("site-packages")).unwrap();
    fs::write(dir.path().join("site-packages/library.py"), LIBRARY).unwrap();
    for python in pythons() {
        let report = report(dir.path(), &[&python, &script]);
        for (line, function) in LINES {
            let place = format!(": app.py:{line} {function} ");
            let mut sites = report.lines().filter(|one| one.contains(" live of "));
            let is_named = sites.any(|one| one.contains(&place) && one.contains("1 live of 1,"));
            assert!(is_named, "{python:?} {place}\n{report}");
        }
    }
}

/// A server whose handler never closes its client, started by its console script. It sends itself
/// five requests and ends without closing anything.
const SERVER: &str = "import asyncio, http.server, os, threading
from contextlib import asynccontextmanager
import httpx
from fastapi import FastAPI

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass

backend = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
threading.Thread(target=backend.serve_forever, daemon=True).start()
kept = []

async def ask_itself():
    while not os.path.exists('server.sock'):
        await asyncio.sleep(0.01)
    for _ in range(5):
        reader, writer = await asyncio.open_unix_connection('server.sock')
        writer.write(b'GET /leak HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n')
        assert b' 200 ' in await reader.readline()
        await reader.read()
        writer.close()
    os._exit(0)

@asynccontextmanager
async def lifespan(app):
    kept.append(asyncio.create_task(ask_itself()))
    yield

app = FastAPI(lifespan=lifespan)

@app.get('/leak')
async def leak():
    client = httpx.AsyncClient()
    kept.append(client)
    await client.get('http://127.0.0.1:%d/' % backend.server_port)
    return {}
";

#[test]
fn a_forgotten_httpx_client_in_fastapi_is_blamed_on_the_handler_and_not_on_uvicorn() {
    let Some(uvicorn) = testkit::software("venv/bin/uvicorn") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("server.py"), SERVER).unwrap();
    let words = ["server:app", "--uds", "server.sock", "--log-level", "error"];
    let mut command: Vec<&Path> = vec![&uvicorn];
    command.extend(words.map(Path::new));
    let report = report(dir.path(), &command);
    let sites: Vec<&str> = report
        .lines()
        .filter(|one| one.contains(" live of "))
        .collect();
    let handler = sites
        .iter()
        .find(|one| one.contains(": server.py:40 leak "));
    assert!(
        handler.is_some_and(|one| one.contains("5 live of 5,")),
        "{report}"
    );
    let by_launcher = sites.iter().find(|one| one.contains(": uvicorn:"));
    assert_eq!(by_launcher, None, "{report}");
}
