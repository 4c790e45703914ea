//! What stays: names that the system chose, not a user.

/// Path components that show the kind of place and reveal nothing about a person.
const PLACES: &[&str] = &[
    "PID",
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "local",
    "share",
    "include",
    "src",
    "log",
    "logs",
    "cache",
    ".cache",
    ".config",
    ".local",
    "spool",
    "lock",
    "locks",
    "shm",
    "pts",
    "mqueue",
    "self",
    "thread-self",
    "fd",
    "fdinfo",
    "task",
    "ns",
    "stat",
    "status",
    "maps",
    "cgroup",
    "mounts",
    "mountinfo",
    "meminfo",
    "cpuinfo",
    "limits",
    "cmdline",
    "net",
    "tcp",
    "tcp6",
    "udp",
    "unix",
    "containers",
    "docker",
    "docker.sock",
    "containerd",
    "kubelet",
    "overlay",
    "overlay2",
    "merged",
    "systemd",
    "journal",
    "user",
    "dbus",
    "system_bus_socket",
    "bus",
    "memory.pressure",
    "node_modules",
    "site-packages",
    "dist-packages",
    "python",
    "node",
    "npm",
    "cargo",
    "rustup",
    "jvm",
    "java",
    "go",
    "venv",
    ".venv",
    "env",
    "target",
    "dist",
    "build",
    "__pycache__",
    ".git",
    "objects",
    "pack",
    "x86_64-linux-gnu",
    "aarch64-linux-gnu",
    "locale",
    "zoneinfo",
    "fonts",
    "ssl",
    "certs",
    "passwd",
    "hosts",
    "resolv.conf",
    "nsswitch.conf",
    "ld.so.cache",
    "localtime",
    "locale-archive",
    "gconv-modules.cache",
    "data",
    "state",
    "sessions",
    "session",
    "db",
    "database",
    "databases",
    "config",
    "workers",
    "worker",
];

/// Suffixes that show the kind of file.
const KINDS: &[&str] = &[
    "jsonl",
    "ndjson",
    "json",
    "log",
    "out",
    "err",
    "txt",
    "md",
    "csv",
    "tsv",
    "parquet",
    "arrow",
    "db",
    "db3",
    "sqlite",
    "sqlite3",
    "wal",
    "shm",
    "journal",
    "ldb",
    "sst",
    "mdb",
    "sock",
    "socket",
    "pid",
    "lock",
    "lck",
    "tmp",
    "temp",
    "bak",
    "old",
    "part",
    "swp",
    "gz",
    "bz2",
    "xz",
    "zst",
    "zip",
    "tar",
    "jar",
    "war",
    "class",
    "so",
    "dylib",
    "dll",
    "node",
    "wasm",
    "py",
    "pyc",
    "js",
    "mjs",
    "cjs",
    "ts",
    "map",
    "rb",
    "rs",
    "go",
    "c",
    "h",
    "java",
    "sh",
    "html",
    "css",
    "xml",
    "yaml",
    "yml",
    "toml",
    "conf",
    "cfg",
    "ini",
    "env",
    "pem",
    "crt",
    "key",
    "bin",
    "dat",
    "data",
    "idx",
    "index",
    "mmap",
    "cache",
    "pack",
    "bson",
    "pdf",
    "png",
    "jpg",
    "jpeg",
    "gif",
    "svg",
    "webp",
    "mp3",
    "mp4",
    "wav",
    "onnx",
    "gguf",
    "safetensors",
    "pt",
    "bundle",
    "d",
    "service",
];

/// Endings by which SQLite names its side files.
const SIDES: &[&str] = &["-wal", "-shm", "-journal"];

/// Ports from 1024 up that commonly identify a service.
const SERVICES: &[u16] = &[
    1433, 1521, 1883, 2049, 2181, 2375, 2376, 2379, 2380, 3000, 3128, 3306, 3389, 4222, 4317, 4318,
    5000, 5432, 5601, 5671, 5672, 6379, 6443, 6667, 7474, 7687, 8000, 8080, 8081, 8086, 8123, 8200,
    8443, 8500, 8888, 9000, 9042, 9090, 9092, 9100, 9200, 9300, 10250, 11211, 11434, 15672, 26379,
    27017,
];

/// Whether a component is the name of a kind of place.
pub(super) fn is_place(component: &[u8]) -> bool {
    matches!(component, b"" | b"." | b"..")
        || PLACES.iter().any(|place| place.as_bytes() == component)
        || is_versioned(component, b"python")
}

/// `python3.11`: a known name and a version.
fn is_versioned(component: &[u8], name: &[u8]) -> bool {
    let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    component
        .strip_prefix(name)
        .is_some_and(|version| version.iter().all(is_version))
}

/// `libssl.so.3`: names of shared libraries are public.
pub(super) fn is_library(component: &[u8]) -> bool {
    let Some(at) = component.windows(3).position(|part| part == b".so") else {
        return false;
    };
    let rest = &component[at + 3..];
    component.starts_with(b"l")
        && is_program_name(component)
        && rest
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

/// Whether this may be the name of a program and not a title that the program set.
pub(super) fn is_program_name(name: &[u8]) -> bool {
    let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-:/()#~".contains(byte);
    !name.is_empty() && name.iter().all(is_usual) && !name.contains(&b'@')
}

/// Splits off the suffix that shows the kind of file: `state.db-wal` is `state` and `.db-wal`.
pub(super) fn split_kind(component: &[u8]) -> (&[u8], &[u8]) {
    let side = SIDES
        .iter()
        .find(|side| component.ends_with(side.as_bytes()))
        .map_or(0, |side| side.len());
    let named = &component[..component.len() - side];
    let kind = named
        .iter()
        .rposition(|byte| *byte == b'.')
        .filter(|at| *at > 0 && KINDS.iter().any(|kind| kind.as_bytes() == &named[at + 1..]));
    let end = kind.unwrap_or(named.len());
    if end == 0 {
        return (component, b"");
    }
    component.split_at(end)
}

/// Whether a port identifies a service.
pub(super) fn is_service(port: u16) -> bool {
    port < 1024 || SERVICES.contains(&port)
}
