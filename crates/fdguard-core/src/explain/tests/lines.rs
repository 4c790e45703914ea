//! Lines as programs write them, each with its symptom.

use super::{WallName, explain};
use crate::playbook::Playbook;

const LINES: &[(&str, &str)] = &[
    // The process's own limit, explicitly.
    (
        "OSError: [Errno 24] Too many open files: '/srv/app/data.json'",
        "too-many-open-files",
    ),
    (
        "thread 'main' panicked at src/db.rs:41: Os { code: 24, kind: Uncategorized, message: \"…\" }",
        "too-many-open-files",
    ),
    (
        "Error: failed to open config: Too many open files (os error 24)",
        "too-many-open-files",
    ),
    (
        "2026-02-01T10:00:00Z ERROR agent: Error: EMFILE: too many open files, open '/home/u/.agent/session.json'",
        "too-many-open-files",
    ),
    (
        "open /etc/hosts: too many open files",
        "too-many-open-files",
    ),
    (
        "/app/vendor/x.rb:12:in `initialize': Too many open files @ rb_sysopen - /tmp/a (Errno::EMFILE)",
        "too-many-open-files",
    ),
    (
        "PHP Warning: fopen(/var/www/x.php): Failed to open stream: Too many open files in /var/www/y.php on line 3",
        "too-many-open-files",
    ),
    (
        "[crit] {error,emfile} in supervisor rabbit_sup",
        "too-many-open-files",
    ),
    (
        "(24)Too many open files: AH00646: Error writing to /var/log/apache2/access.log",
        "too-many-open-files",
    ),
    ("syscall failed: errno=24", "too-many-open-files"),
    (
        "WARNING! Your cache is running out of filedescriptors",
        "out-of-descriptors",
    ),
    (
        "[ALERT] Proxy web reached system FD limit (maxsock=1024). Please check system tunables.",
        "out-of-descriptors",
    ),
    ("file descriptor limit alarm set.", "out-of-descriptors"),
    // In the words of individual programs.
    (
        "2026/02/01 10:00:00 [alert] 31#31: accept4() failed (24: Too many open files)",
        "nginx-full",
    ),
    (
        "2026/02/01 10:00:00 [crit] 31#31: *81 open() \"/var/www/app.css\" failed (24: Too many open files), client: 10.0.0.9",
        "nginx-full",
    ),
    (
        "2026/02/01 10:00:00 [alert] 31#31: *7 socket() failed (24: Too many open files) while connecting to upstream",
        "nginx-full",
    ),
    (
        "LOG:  out of file descriptors: Too many open files; release and retry",
        "postgres-full",
    ),
    (
        "ERROR 1016 (HY000): Can't open file: './shop/orders.frm' (errno: 24)",
        "mysql-full",
    ),
    (
        "[ERROR] Error in accept: (Errcode: 24 - Too many open files)",
        "mysql-full",
    ),
    (
        "# Current maximum open files is 1024. maxclients has been reduced to 992 to compensate for low ulimit.",
        "redis-limit",
    ),
    (
        "2026/02/01 10:00:00 http: Accept error: accept tcp [::]:8080: accept4: too many open files; retrying in 1s",
        "go-accept",
    ),
    ("accept4: too many open files", "accept-full"),
    (
        "asyncio: socket.accept() out of system resource: OSError: [Errno 24] Too many open files",
        "accept-full",
    ),
    ("java.net.SocketException: Too many open files", "java-full"),
    (
        "Caused by: java.io.FileNotFoundException: /srv/app/config.yml (Too many open files)",
        "java-full",
    ),
    (
        "python3: error while loading shared libraries: libz.so.1: cannot open shared object file: Error 24",
        "library-not-loaded",
    ),
    (
        "ImportError: libssl.so.3: cannot open shared object file: Too many open files",
        "library-not-loaded",
    ),
    ("Error: spawn EMFILE", "spawn-full"),
    ("Error: spawn /bin/sh EMFILE", "spawn-full"),
    ("fork/exec /usr/bin/git: too many open files", "spawn-full"),
    ("Error: spawn EBADF", "bad-descriptor-at-spawn"),
    (
        "posix_spawn: Bad file descriptor",
        "bad-descriptor-at-spawn",
    ),
    ("bash: pipe error: Too many open files", "pipe-full"),
    (
        "GLib-ERROR: Creating pipes for GWakeup: Too many open files",
        "pipe-full",
    ),
    ("make: pipe: Too many open files", "pipe-full"),
    ("pipe2 failed", "pipe-failed"),
    (
        "sh: 1: Cannot make pipe for command substitution",
        "pipe-failed",
    ),
    ("dup2() failed, cannot redirect", "dup-failed"),
    ("sh: 3: dup: no", "dup-complains"),
    (
        "sqlite3.OperationalError: unable to open database file",
        "database-not-opened",
    ),
    (
        "SqliteError: SQLITE_CANTOPEN: unable to open database file",
        "database-not-opened",
    ),
    ("server: accept failed, will try again", "accept-failed"),
    (
        "socket.gaierror: getaddrinfo failed: System error",
        "resolver-full",
    ),
    (
        "dns.c: EAI_SYSTEM while looking up api.example.org",
        "resolver-full",
    ),
    (
        "dial tcp: lookup api.example.org: too many open files",
        "resolver-full",
    ),
    // select().
    (
        "ValueError: filedescriptor out of range in select()",
        "select-out-of-range",
    ),
    (
        "fatal: file descriptor 1025 exceeds FD_SETSIZE (1024)",
        "select-out-of-range",
    ),
    ("FD_SET: fd 1105 >= FD_SETSIZE", "select-out-of-range"),
    ("#5 0x7f00 in __fdelt_chk () from libc.so.6", "select-fdelt"),
    (
        "warning: FD_SETSIZE is 1024 on this system",
        "select-mentioned",
    ),
    (
        "*** buffer overflow detected ***: terminated",
        "select-overflow",
    ),
    // The host.
    ("VFS: file-max limit 65536 reached", "host-file-table"),
    (
        "OSError: [Errno 23] Too many open files in system",
        "host-file-table",
    ),
    (
        "LOG:  out of file descriptors: Too many open files in system; release and retry",
        "host-file-table",
    ),
    (
        "Error: ENFILE: file table overflow, open '/etc/hosts'",
        "host-file-table",
    ),
    (
        "Os { code: 23, kind: Uncategorized, message: \"x\" }",
        "host-file-table",
    ),
    // inotify.
    (
        "Error: ENOSPC: System limit for number of file watchers reached, watch '/home/u/p'",
        "inotify-watches",
    ),
    (
        "inotify_add_watch(7, \"/srv\") failed: No space left on device",
        "inotify-watches",
    ),
    (
        "OSError: [Errno 28] inotify watch limit reached",
        "inotify-watches",
    ),
    (
        "Error: EMFILE: too many open files, watch '/home/u/p/src'",
        "inotify-instances",
    ),
    (
        "OSError: [Errno 24] inotify instance limit reached",
        "inotify-instances",
    ),
    (
        "Failed to allocate directory watch: Too many open files",
        "inotify-instances",
    ),
    (
        "failed to create fsnotify watcher: too many open files",
        "inotify-instances",
    ),
    (
        "The configured user limit (128) on the number of inotify instances has been reached",
        "inotify-instances",
    ),
    (
        "tail: inotify cannot be used, reverting to polling: Too many open files",
        "inotify-instances",
    ),
    // Terminals.
    ("OSError: out of pty devices", "ptys-used-up"),
    ("PTY allocation request failed on channel 0", "ptys-used-up"),
    ("open /dev/ptmx: no space left on device", "ptys-used-up"),
    ("Error: forkpty(3) failed.", "pty-failed"),
    (
        "openpty failed: [Errno 24] Too many open files",
        "too-many-open-files",
    ),
    // Processes and threads.
    ("RuntimeError: can't start new thread", "tasks-used-up"),
    (
        "bash: fork: retry: Resource temporarily unavailable",
        "tasks-used-up",
    ),
    (
        "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory",
        "tasks-used-up",
    ),
    (
        "runtime: failed to create new OS thread (have 4096 already; errno=11)",
        "tasks-used-up",
    ),
    (
        "fatal: unable to create thread: Resource temporarily unavailable",
        "tasks-used-up",
    ),
    ("error: cannot fork() for fetch-pack", "cannot-fork"),
    (
        "cgroup: fork rejected by pids controller in /docker/abc",
        "tasks-used-up",
    ),
    ("Error: spawn git EAGAIN", "tasks-used-up"),
    // Doubtful lines.
    (
        "curl: (6) Could not resolve host: api.example.org",
        "name-not-resolved",
    ),
    (
        "curl: (7) Failed to connect to localhost port 8080",
        "connection-failed",
    ),
    (
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "name-not-resolved",
    ),
    (
        "Refused to apply style from 'http://h/app.css' because its MIME type ('text/plain') is not a supported stylesheet MIME type",
        "wrong-mime-type",
    ),
    (
        "provider authentication failed: anthropic",
        "authentication-failed",
    ),
    (
        "ERROR: missing requirements file: skills/x/requirements.txt",
        "file-taken-for-missing",
    ),
    (
        "refusing to exit: transcript would have been lost",
        "record-not-written",
    ),
    ("-ERR max number of clients reached", "redis-clients"),
    (
        "docker: Error response from daemon: error setting rlimits for ready process",
        "limit-not-raised",
    ),
    (
        "bash: ulimit: open files: cannot modify limit: Operation not permitted",
        "limit-not-raised",
    ),
    ("recvfrom: Resource temporarily unavailable", "try-again"),
    ("read ECONNRESET", "connection-reset"),
    ("epoll_create1() failed, giving up", "epoll-failed"),
    // Looks like a kernel limit but is not.
    (
        "2026/02/01 10:00:00 [alert] 31#31: 512 worker_connections are not enough",
        "nginx-worker-connections",
    ),
    (
        "FATAL:  sorry, too many clients already",
        "database-connections",
    ),
    (
        "Maximum number of clients reachedError: cannot open display: :0",
        "display-clients",
    ),
    ("write failed: Bad file descriptor", "bad-descriptor"),
];

/// Lines without symptoms.
const INNOCENT: &[&str] = &[
    "Max open files: 65536",
    "max open files            1048576    1048576    files",
    "open files                          (-n) 1024",
    "OPENFILE dialog shown, GENFILE written, ENFILED",
    "MAX_EMFILE_RETRIES=5",
    "[Errno 245] something else",
    "os error 240",
    "errno=2400",
    "rsync warning: some files vanished before they could be transferred (code 24) at main.c(1338)",
    "rsync error: some files could not be transferred (code 23) at main.c(1338)",
    "cc -DFD_SETSIZE=4096 -c main.c",
    "write error: No space left on device",
    "watching 24 files",
    "opened too many browser tabs",
    "GET /docs/emfiles HTTP/1.1",
    "duplicate key value violates unique constraint",
    "accepted connection from 10.0.0.7:4431",
    "listening on 0.0.0.0:8024",
    "fd_counts pid=4101 count=149 highest=148 soft=1024 percent=14.6 pipe=36",
    "{\"schema\":\"fdguard.explanation/1\",\"symptoms\":[{\"example\":\"EMFILE: too many open files\"}]}",
    "fs.inotify.max_user_watches = 524288",
    "sysctl: applying fs.inotify.max_user_instances=8192",
    "CHANGELOG: fixed \"too many open files\" at start",
    "Resource monitor: open_fds=41, pool_engines=2",
    "",
];

#[test]
fn r17_every_disguise_is_recognised() {
    let playbook = Playbook::embedded();
    let mut wrong = Vec::new();
    for (line, expected) in LINES {
        let explanation = explain(&playbook, [line.as_bytes()], &[]).unwrap();
        let counted = explanation.symptoms.iter().map(|found| &found.id);
        let other = explanation.not_counted.iter().map(|row| &row.found.id);
        let found: Vec<&String> = counted.chain(other).collect();
        if found != [expected] {
            wrong.push(format!("{found:?} instead of {expected}: {line}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn r17_innocent_lines_stay_innocent() {
    let playbook = Playbook::embedded();
    for line in INNOCENT {
        let explanation = explain(&playbook, [line.as_bytes()], &[WallName::SoftLimit]).unwrap();
        assert!(explanation.symptoms.is_empty(), "{line}: {explanation:?}");
        assert!(
            explanation.not_counted.is_empty(),
            "{line}: {explanation:?}"
        );
    }
}

#[test]
fn every_symptom_has_its_line() {
    let without: Vec<String> = Playbook::embedded()
        .symptoms()
        .iter()
        .map(|symptom| symptom.id.clone())
        .filter(|id| LINES.iter().all(|(_, known)| known != id))
        .collect();
    assert_eq!(without, Vec::<String>::new());
}
