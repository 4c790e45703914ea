//! Who holds descriptors in programs as they are usually written, in every version of Python.

use super::why::{MINORS, Victim, text};

/// A chain: the group, how many descriptors it holds, and a part of its text. Chains of one group
/// have a row each.
type Row = (&'static str, usize, &'static str);

/// What is wrong in the answers for the groups of a victim: every chain of every group has a row,
/// and every row a chain. `others` replaces the rows of a group in some versions.
fn wrong(minor: &str, victim: &Victim, rows: &[Row], others: &[(&str, Row)]) -> Vec<String> {
    let names: Vec<&String> = victim.held.keys().collect();
    let groups: Vec<Vec<u32>> = victim.held.values().cloned().collect();
    let answer = victim.target().ask(&groups, None).unwrap();
    let mut wrong = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let of_version = others.iter().filter(|(minors, row)| {
            let mut minors = minors.split(' ');
            row.0 == name && minors.any(|one| one == minor)
        });
        let mut expected: Vec<Row> = of_version.map(|(_, row)| *row).collect();
        if expected.is_empty() {
            expected = rows.iter().filter(|row| row.0 == name).copied().collect();
        }
        let chains = text(&answer, at);
        for (line, chain) in chains.lines().zip(&answer.whys[at].chains) {
            let is_row = |row: &Row| row.1 == chain.count && line.contains(row.2);
            match expected.iter().position(is_row) {
                Some(row) => {
                    expected.remove(row);
                }
                None => wrong.push(format!("{minor} {name} {}: {line}", chain.count)),
            }
        }
        let missing = expected.into_iter();
        wrong
            .extend(missing.map(|(_, count, text)| format!("{minor} {name} {count}, not: {text}")));
    }
    wrong
}

#[test]
fn w22_the_holders_of_usual_programs_are_named_in_every_version() {
    let mut all = Vec::new();
    for minor in MINORS {
        let Some(victim) = Victim::start_script(minor, "why_kinds.py") else {
            continue;
        };
        all.extend(wrong(minor, &victim, KINDS, KINDS_OF_VERSIONS));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn w22_callbacks_of_asyncio_are_named_in_every_version() {
    let mut all = Vec::new();
    for minor in MINORS {
        let Some(victim) = Victim::start_script(minor, "why_asyncio.py") else {
            continue;
        };
        all.extend(wrong(minor, &victim, ASYNCIO, &[]));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn w22_what_waiting_greenlets_hold_is_named_in_every_version() {
    let mut all = Vec::new();
    for minor in MINORS {
        let Some(packages) = testkit::software(&format!("greenlet/{minor}")) else {
            continue;
        };
        let environment = [("PYTHONPATH", packages.as_path())];
        let Some(victim) = Victim::start_in(minor, "why_greenlet.py", &environment) else {
            continue;
        };
        all.extend(wrong(minor, &victim, GREENLETS, &[]));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

const KINDS: &[Row] = &[
    (
        "asyncio-queue",
        3,
        "held by 3 TextIOWrapper ← deque (3 entries) ← asyncio.Queue._queue ← list (1 entry) ← __main__.AQ [object]",
    ),
    (
        "asyncio-streams",
        3,
        " ← Task ← set (3 entries) ← __main__.TASKS; also a running event loop [object]",
    ),
    (
        "asyncio-streams",
        3,
        "held by 3 socket.socket ← list (3 entries) ← __main__.PEERS [object]",
    ),
    (
        "asyncio-streams",
        1,
        "held by selectors.EpollSelector._selector ← asyncio._UnixSelectorEventLoop._selector ← a running event loop [object]",
    ),
    (
        "asyncio-streams",
        1,
        "held by asyncio._UnixSelectorEventLoop._ssock ← a running event loop [object]",
    ),
    (
        "asyncio-streams",
        1,
        "held by asyncio._UnixSelectorEventLoop._csock ← a running event loop [object]",
    ),
    (
        "atexit-args",
        1,
        "held by TextIOWrapper ← tuple (1 entry) ← an atexit callback [object]",
    ),
    (
        "bz2lzma",
        1,
        "held by bz2.BZ2File._fp ← list (2 entries) ← __main__.BZ [object]",
    ),
    (
        "bz2lzma",
        1,
        "held by lzma.LZMAFile._fp ← list (2 entries) ← __main__.BZ [object]",
    ),
    (
        "cached_property",
        4,
        "held by 4 CP.f ← list (4 entries) ← __main__.CPS [object]",
    ),
    (
        "chainmap",
        1,
        "held by TextIOWrapper ← dict['a'] ← list (2 entries) ← ChainMap.maps ← __main__.CM [object]",
    ),
    (
        "class-registry",
        3,
        "held by 3 Res.fd ← dict (3 entries) ← Meta.registry [object]",
    ),
    (
        "codecs",
        2,
        "held by 2 codecs.StreamReaderWriter.stream ← list (2 entries) ← __main__.CO [object]",
    ),
    (
        "contextvar",
        1,
        "held by Context ← __main__.ctx; also a context variable [object]",
    ),
    (
        "csv-reader",
        2,
        "held by 2 reader ← list (2 entries) ← __main__.CR [object]",
    ),
    ("ctx-copy", 1, "held by Context ← __main__.ctx [object]"),
    (
        "cycle-in-container",
        1,
        "only an unreachable cycle holds them: Node → TextIOWrapper; gc is on [unreachable]",
    ),
    (
        "dataclass",
        4,
        "held by 4 Job.log ← list (4 entries) ← __main__.JOBS [object]",
    ),
    (
        "defaultdict",
        4,
        "held by 4 TextIOWrapper ← list (2 entries) ← defaultdict (2 entries) ← __main__.DD [object]",
    ),
    (
        "deque",
        4,
        "held by 4 TextIOWrapper ← deque (4 entries) ← __main__.DQ [object]",
    ),
    (
        "dict-of-slots",
        4,
        "held by 4 Slotted.handle ← dict (4 entries) ← __main__.BYNAME [object]",
    ),
    (
        "dirfd",
        4,
        "no object owns these numbers; what keeps a plain number takes a second walk after more are opened [one walk]",
    ),
    ("enum", 1, "held by E._value_ ← E.A [object]"),
    (
        "enumerate-zip",
        2,
        "held by 2 TextIOWrapper ← tuple (2 entries) ← zip ← list (3 entries) ← __main__.EZ [object]",
    ),
    (
        "enumerate-zip",
        1,
        "held by enumerate ← list (3 entries) ← __main__.EZ [object]",
    ),
    (
        "enumerate-zip",
        1,
        "held by filter ← list (3 entries) ← __main__.EZ [object]",
    ),
    ("epoll", 1, "held by epoll ← __main__.EP [object]"),
    (
        "exc_info-tuple",
        3,
        "local `conn` of fail2() why_kinds.py:98 ← traceback",
    ),
    (
        "exception-list",
        4,
        "local `f` of fail() why_kinds.py:90 ← traceback",
    ),
    (
        "executor-pending",
        4,
        "SimpleQueue ← concurrent.ThreadPoolExecutor._work_queue ← __main__.EX2 [object]",
    ),
    (
        "exitstack",
        4,
        "held by 4 TextIOWrapper ← method _IOBase.__exit__() ← tuple (2 entries) ← deque (4 entries) ← contextlib.ExitStack._exit_callbacks ← __main__.STACK [object]",
    ),
    (
        "exitstack-callback",
        4,
        "held by 4 function.__wrapped__ ← tuple (2 entries) ← deque (4 entries) ← contextlib.ExitStack._exit_callbacks ← __main__.STACK2 [object]",
    ),
    (
        "finalize",
        1,
        "held by TextIOWrapper ← tuple (1 entry) ← weakref._Info.args ← dict (1 entry) ← weakref.finalize._registry [object]",
    ),
    (
        "frozen-dataclass-in-frozenset",
        4,
        "held by 4 FJob.log ← frozenset (4 entries) ← __main__.FJOBS [object]",
    ),
    (
        "function-attr",
        1,
        "held by TextIOWrapper ← dict['f'] ← function.cache ← __main__.fn [object]",
    ),
    (
        "futures",
        4,
        "held by 4 concurrent.Future._result ← list (4 entries) ← __main__.FUT [object]",
    ),
    (
        "generator",
        3,
        "held by 3 TextIOWrapper ← local `fh` of lines() why_kinds.py:165 ← list (3 entries) ← __main__.GEN [object]",
    ),
    (
        "generator-chain",
        2,
        "held by 2 TextIOWrapper ← tuple (1 entry) ← map ← tuple (2 entries) ← tuple_iterator ← itertools.chain ← list (2 entries) ← __main__.ITER [object]",
    ),
    (
        "gzip",
        2,
        "held by 2 gzip.GzipFile.myfileobj ← list (2 entries) ← __main__.GZ [object]",
    ),
    (
        "heap",
        3,
        "held by 3 TextIOWrapper ← tuple (2 entries) ← list (3 entries) ← __main__.HP [object]",
    ),
    (
        "http-client",
        1,
        "held by socketserver.ThreadingTCPServer.socket ← __main__.S2; also ",
    ),
    (
        "http-conns",
        3,
        "held by 3 http.HTTPConnection.sock ← dict (3 entries) ← __main__.HCC [object]",
    ),
    ("http-conns", 3, "handle() why_kinds.py:"),
    (
        "http-responses",
        3,
        "held by 3 socket.SocketIO._sock ← BufferedReader ← http.HTTPResponse.fp ← list (3 entries) ← __main__.HC [object]",
    ),
    ("http-responses", 3, "handle() why_kinds.py:"),
    (
        "inherit-dict",
        3,
        "held by 3 TextIOWrapper ← Reg (3 entries) ← __main__.REG [object]",
    ),
    (
        "inherit-list",
        3,
        "held by 3 TextIOWrapper ← Pool (3 entries) ← __main__.POOL [object]",
    ),
    (
        "lambda-default",
        4,
        "<lambda>() ← list (4 entries) ← __main__.LD [object]",
    ),
    (
        "logging-handlers",
        3,
        "held by 3 logging.FileHandler.stream ← list (3 entries) ← logging.Logger.handlers ← dict['app.job']",
    ),
    (
        "logging-rotating-named-loggers",
        3,
        "logging.RotatingFileHandler.stream ← list (1 entry) ← logging.Logger.handlers ← dict (8 entries)",
    ),
    (
        "lru_cache",
        4,
        "held by 4 TextIOWrapper ← dict (4 entries) ← functools._lru_cache_wrapper ← __main__.opened [object]",
    ),
    (
        "lru_cache-args",
        1,
        "held by TextIOWrapper ← tuple (1 entry) ← dict (1 entry) ← functools._lru_cache_wrapper ← __main__.opened2 [object]",
    ),
    (
        "lru_cache-args",
        1,
        "held by TextIOWrapper ← dict (1 entry) ← functools._lru_cache_wrapper ← __main__.opened2 [object]",
    ),
    (
        "mappingproxy",
        1,
        "held by TextIOWrapper ← dict['a'] ← mappingproxy ← __main__.MPX [object]",
    ),
    (
        "memoryview/BytesIO-none",
        1,
        "held by TextIOWrapper ← __main__.TW [object]",
    ),
    (
        "mmap",
        1,
        "held by mmap.mmap ← dict['m'] ← __main__.MM [object]",
    ),
    (
        "module-attr",
        1,
        "held by TextIOWrapper ← plugin.conn [object]",
    ),
    (
        "mp-pipe",
        4,
        "held by 4 multiprocessing.Connection ← tuple (2 entries) ← list (2 entries) ← __main__.MP [object]",
    ),
    (
        "mp-queue",
        1,
        "held by multiprocessing.Queue._reader ← __main__.MQ [object]",
    ),
    (
        "mp-queue",
        1,
        "held by multiprocessing.Queue._writer ← __main__.MQ [object]",
    ),
    (
        "namedtuple",
        4,
        "held by 4 TextIOWrapper ← NT (2 entries) ← list (4 entries) ← __main__.NTS [object]",
    ),
    (
        "nested-closures",
        4,
        "held by 4 TextIOWrapper ← closure of outer.<locals>.mid.<locals>.inner() ← list (4 entries) ← __main__.CBS [object]",
    ),
    (
        "ordereddict",
        4,
        "held by 4 TextIOWrapper ← OrderedDict (4 entries) ← __main__.OD [object]",
    ),
    (
        "partial",
        4,
        "held by 4 TextIOWrapper ← tuple (1 entry) ← functools.partial ← list (4 entries) ← __main__.PART [object]",
    ),
    (
        "popen-list",
        3,
        "held by 3 subprocess.Popen.stdin ← list (3 entries) ← __main__.PROCS [object]",
    ),
    (
        "popen-list",
        3,
        "held by 3 subprocess.Popen.stdout ← list (3 entries) ← __main__.PROCS [object]",
    ),
    (
        "property-private",
        1,
        "held by P._P__f ← list (1 entry) ← dict['b'] ← dict['a'] ← __main__.PS [object]",
    ),
    (
        "queue",
        4,
        "held by 4 TextIOWrapper ← deque (4 entries) ← queue.Queue.queue ← __main__.Q [object]",
    ),
    (
        "queue-tuples",
        4,
        "held by 4 TextIOWrapper ← tuple (2 entries) ← list (4 entries) ← queue.PriorityQueue.queue ← __main__.PQ [object]",
    ),
    (
        "selectors",
        2,
        "held by 2 socket.socket ← selectors.SelectorKey (4 entries) ← dict (2 entries) ← selectors.EpollSelector._fd_to_key ← __main__.SEL [object]",
    ),
    (
        "selectors",
        2,
        "held by 2 socket.socket ← tuple (2 entries) ← selectors.SelectorKey (4 entries) ← dict (2 entries) ← selectors.EpollSelector._fd_to_key ← __main__.SEL [object]",
    ),
    (
        "selectors",
        1,
        "held by selectors.EpollSelector._selector ← __main__.SEL [object]",
    ),
    (
        "signal-handler",
        1,
        "held by TextIOWrapper ← tuple (1 entry) ← functools.partial ← C code, or something that does not tell gc [no holder found]",
    ),
    (
        "simplenamespace",
        1,
        "held by types.SimpleNamespace.f ← __main__.NS [object]",
    ),
    (
        "simplenamespace",
        1,
        "held by types.SimpleNamespace.h ← types.SimpleNamespace.g ← __main__.NS [object]",
    ),
    ("simplequeue", 4, "SimpleQueue ← __main__.SQ [object]"),
    ("singleton", 1, "held by Single.f ← Single._inst [object]"),
    (
        "socketserver",
        1,
        "held by socketserver.ThreadingTCPServer.socket ← __main__.SRV [object]",
    ),
    (
        "spooled",
        1,
        "held by tempfile.SpooledTemporaryFile._file ← __main__.SP [object]",
    ),
    (
        "sqlite-class-attr",
        1,
        "held by sqlite3.Connection ← DB.conn [object]",
    ),
    (
        "tar-members",
        2,
        "held by 2 tarfile.TarFile.fileobj ← list (2 entries) ← __main__.TS [object]",
    ),
    (
        "tempfile",
        2,
        "held by 2 BufferedRandom ← list (4 entries) ← __main__.TF [object]",
    ),
    (
        "tempfile",
        2,
        "held by 2 tempfile._TemporaryFileWrapper.file ← list (4 entries) ← __main__.TF [object]",
    ),
    (
        "thread-args",
        3,
        "held by 3 TextIOWrapper ← tuple (2 entries) ← threading.Thread._args ← list (3 entries) ← __main__.TH; also local `f` of tgt() why_kinds.py:50",
    ),
    (
        "thread-not-kept",
        3,
        "local `conn` of tgt2() why_kinds.py:54 in thread ",
    ),
    (
        "timer",
        1,
        "TextIOWrapper ← tuple (1 entry) ← threading.Timer.args ← local `self` of ",
    ),
    (
        "unreachable-no-cycle?-list-self",
        1,
        "only an unreachable cycle holds them: list → TextIOWrapper; gc is on [unreachable]",
    ),
    (
        "userdict",
        1,
        "held by TextIOWrapper ← dict['x'] ← UserDict.data ← __main__.UD [object]",
    ),
    (
        "weakkey",
        1,
        "held by TextIOWrapper ← dict (1 entry) ← weakref.WeakKeyDictionary.data ← __main__.WK [object]",
    ),
    (
        "weakvalue",
        1,
        "held by W.f ← list (1 entry) ← __main__.KEEPW [object]",
    ),
    (
        "zip-members",
        3,
        "held by 3 zipfile._SharedFile._file ← zipfile.ZipExtFile._fileobj ← list (3 entries) ← __main__.ZS [object]",
    ),
];

/// From 3.13 on the value is in the member itself.
const KINDS_OF_VERSIONS: &[(&str, Row)] = &[(
    "3.9 3.10 3.11 3.12",
    (
        "enum",
        1,
        "held by TextIOWrapper ← dict (1 entry) ← E._value2member_map_ [object]",
    ),
)];

const ASYNCIO: &[Row] = &[
    (
        "bound",
        1,
        "held by Job.log ← method Job.finish() ← asyncio.TimerHandle._callback ← list (6 entries) ← asyncio._UnixSelectorEventLoop._scheduled ← a running event loop [object]",
    ),
    (
        "closure",
        1,
        "held by BufferedReader ← closure of closed_over.<locals>.<lambda>() ← asyncio.TimerHandle._callback ← list (6 entries) ← asyncio._UnixSelectorEventLoop._scheduled ← a running event loop [object]",
    ),
    (
        "future",
        2,
        "held by 2 BufferedReader ← tuple (1 entry) ← functools.partial ← Future ← list (2 entries) ← __main__.futures [object]",
    ),
    (
        "later",
        3,
        "held by 3 BufferedReader ← tuple (1 entry) ← asyncio.TimerHandle._args ← list (6 entries) ← asyncio._UnixSelectorEventLoop._scheduled ← a running event loop [object]",
    ),
    (
        "reader",
        1,
        "selectors.EpollSelector._fd_to_key ← asyncio._UnixSelectorEventLoop._selector ← a running event loop [object]",
    ),
    (
        "soon",
        3,
        "held by 3 BufferedReader ← tuple (1 entry) ← asyncio.Handle._args ← deque (3 entries) ← asyncio._UnixSelectorEventLoop._ready ← a running event loop [object]",
    ),
    (
        "task",
        1,
        "held by BufferedReader ← tuple (1 entry) ← functools.partial ← Task ← list (1 entry) ← __main__.tasks; also a running event loop [object]",
    ),
    (
        "watched",
        3,
        "list (1 entry) ← dict['host'] ← Client.pools ← list (3 entries) ← __main__.clients; also ",
    ),
];

const GREENLETS: &[Row] = &[
    (
        "closure",
        1,
        "held by BufferedReader ← default argument of <lambda>() ← greenlet.greenlet ← __main__.idle [object]",
    ),
    (
        "local",
        1,
        "local `held` of waits() why_greenlet.py:21 in a greenlet [object]",
    ),
    (
        "object",
        1,
        "local `session` of serves() why_greenlet.py:49 in a greenlet [object]",
    ),
    (
        "outer",
        1,
        "local `held` of outer() why_greenlet.py:32 in a greenlet [object]",
    ),
];
