use super::{blamed as place, culprit, is_programs, leaking_caller_frame, unread_language};
use crate::origin::{Frame, Language, Stack};

/// `file|function|line|module`, each may be empty.
fn frame(language: Language, text: &str) -> Frame {
    let mut parts = text
        .split('|')
        .map(|part| (!part.is_empty()).then_some(part));
    let mut next = || parts.next().flatten();
    Frame {
        file: next().map(Into::into),
        function: next().map(str::to_owned),
        line: next().map(|line| line.parse().unwrap()),
        module: next().map(Into::into),
        language,
    }
}

fn stack(frames: &[(Language, &str)]) -> Stack {
    frames
        .iter()
        .map(|(language, text)| frame(*language, text))
        .collect()
}

fn blamed(frames: &[(Language, &str)]) -> Option<String> {
    culprit(&stack(frames))?.function.clone()
}

use Language::{C, Cpp, Go, Java, Native, Node, Python, Rust};

#[test]
fn r19_python_library_and_interpreter_frames_are_passed_over() {
    let found = blamed(&[
        (
            Native,
            "./socket/socket.c|__socket|12|/lib/x86_64-linux-gnu/libc.so.6",
        ),
        (
            Native,
            "Modules/socketmodule.c|sock_initobj|5300|/opt/py/lib/python3.11/lib-dynload/_socket.so",
        ),
        (
            Native,
            "Python/ceval.c|_PyEval_EvalFrameDefault|5000|/opt/py/lib/libpython3.11.so.1.0",
        ),
        (
            Python,
            "/opt/py/lib/python3.11/socket.py|create_connection|830|",
        ),
        (
            Python,
            "/srv/.venv/lib/python3.11/site-packages/httpx/_client.py|send|900|",
        ),
        (Python, "/usr/lib/python3/dist-packages/six.py|call|3|"),
        (Python, "<frozen importlib._bootstrap>|_call|241|"),
        (Python, "/srv/app/run.py|ChatModel.invoke|31|"),
        (Python, "/srv/app/run.py|main|80|"),
    ]);
    assert_eq!(found.as_deref(), Some("ChatModel.invoke"));
}

#[test]
fn r19_a_project_below_a_lib_dir_is_still_ones_own() {
    let found = blamed(&[(Python, "/srv/lib/python_tools/run.py|go|3|")]);
    assert_eq!(found.as_deref(), Some("go"));
    let library = (
        Python,
        "/home/u/.pyenv/versions/3.11.7/lib/python3.11/subprocess.py|Popen|1|",
    );
    let own = (Python, "run.py|begin|9|");
    assert_eq!(blamed(&[library, own]).as_deref(), Some("begin"));
}

#[test]
fn r19_node_internals_and_packages_are_passed_over() {
    let found = blamed(&[
        (Native, "|uv_fs_open||/usr/local/bin/node"),
        (Node, "node:fs|openSync|600|"),
        (Node, "node:internal/modules/cjs/loader|load|1|"),
        (Node, "/srv/node_modules/chokidar/index.js|watch|40|"),
        (Node, "/srv/index.js|readMagic|8|"),
    ]);
    assert_eq!(found.as_deref(), Some("readMagic"));
}

#[test]
fn r19_the_jdk_is_passed_over() {
    let found = blamed(&[
        (
            Native,
            "|Java_sun_nio_fs_open0||/usr/lib/jvm/java-17/lib/libnio.so",
        ),
        (
            Java,
            "UnixNativeDispatcher.java|sun.nio.fs.UnixNativeDispatcher.open|72|java.base",
        ),
        (Java, "Files.java|java.nio.file.Files.lines|4000|java.base"),
        (
            Java,
            "HttpClient.java|org.apache.http.Client.get|3|/home/ann/.m2/repository/http.jar",
        ),
        (Java, "Main.java|Main.firstLine|22|"),
    ]);
    assert_eq!(found.as_deref(), Some("Main.firstLine"));
}

#[test]
fn r19_the_rust_library_and_registry_are_passed_over() {
    let found = blamed(&[
        (C, "|open64||/lib/x86_64-linux-gnu/libc.so.6"),
        (
            Rust,
            "/rustc/abc/library/std/src/sys/fs/unix.rs|std::sys::fs::unix::File::open_c|1200|/srv/app",
        ),
        (
            Rust,
            "|<std::fs::OpenOptions as core::clone::Clone>::clone||/srv/app",
        ),
        (
            Rust,
            "/home/ann/.cargo/registry/src/index/tempfile-3/src/file.rs|tempfile::create|9|/srv/app",
        ),
        (Rust, "src/main.rs|app::session::begin|41|/srv/app"),
        (Rust, "|std::rt::lang_start||/srv/app"),
    ]);
    assert_eq!(found.as_deref(), Some("app::session::begin"));
}

#[test]
fn r19_libc_and_the_cpp_library_are_passed_over() {
    let c = blamed(&[
        (
            C,
            "../sysdeps/unix/sysv/linux/open64.c|__libc_open64|41|/lib/x86_64-linux-gnu/libc.so.6",
        ),
        (C, "main.c|reactor_init|30|/srv/reactor"),
        (C, "main.c|main|90|/srv/reactor"),
    ]);
    assert_eq!(c.as_deref(), Some("reactor_init"));
    let cpp = blamed(&[
        (C, "|fopen64||/lib/x86_64-linux-gnu/libc.so.6"),
        (
            Cpp,
            "|std::__basic_file<char>::open||/lib/x86_64-linux-gnu/libstdc++.so.6",
        ),
        (
            Cpp,
            "/usr/include/c++/12/fstream|std::basic_ofstream<char>::open|900|/srv/app",
        ),
        (Cpp, "log.cc|Log::rotate()|12|/srv/app"),
    ]);
    assert_eq!(cpp.as_deref(), Some("Log::rotate()"));
}

#[test]
fn r19_gos_library_is_passed_over() {
    let found = blamed(&[
        (
            Go,
            "/usr/local/go/src/syscall/zsyscall.go|syscall.socket|9|",
        ),
        (
            Go,
            "/usr/local/go/src/net/http/client.go|net/http.(*Client).Do|580|",
        ),
        (
            Go,
            "/home/ann/go/pkg/mod/github.com/a/b@v1/c.go|github.com/a/b.Call|1|",
        ),
        (Go, "/srv/app/main.go|main.checkHealth|33|"),
        (Go, "/usr/local/go/src/runtime/proc.go|runtime.main|250|"),
    ]);
    assert_eq!(found.as_deref(), Some("main.checkHealth"));
}

#[test]
fn r19_gos_poller_is_not_blamed_on_the_line_that_needed_it_first() {
    let frames = [
        (
            Go,
            "/usr/local/go/src/runtime/netpoll_epoll.go|runtime.netpollinit|23|",
        ),
        (
            Go,
            "/usr/local/go/src/runtime/netpoll.go|runtime.netpollGenericInit|197|",
        ),
        (Go, "/usr/local/go/src/os/file.go|os.Open|9|"),
        (Go, "/srv/app/main.go|main.main|33|"),
    ];
    assert_eq!(blamed(&frames).as_deref(), Some("runtime.netpollinit"));
    assert!(!is_programs(&stack(&frames)));
}

/// A pool of short-lived workers failed a check: each keeps the `/dev/null` that replaces its
/// stdin.
#[test]
fn what_multiprocessing_opens_in_a_new_worker_is_not_the_programs() {
    let library = |frame: &'static str| (Python, frame);
    let bootstrap = "/opt/py/lib/python3.11/multiprocessing/process.py|BaseProcess._bootstrap|299|";
    let forked = [
        library(bootstrap),
        library("/opt/py/lib/python3.11/multiprocessing/popen_fork.py|Popen._launch|71|"),
        (Python, "/srv/app/run.py|one|22|"),
    ];
    let opened_by = |frames: &[(Language, &'static str)]| {
        let frames: Vec<_> = frames.iter().chain(&forked).copied().collect();
        is_programs(&stack(&frames))
    };
    let stdin = "/opt/py/lib/python3.11/multiprocessing/util.py|_close_stdin|420|";
    assert!(!opened_by(&[library(stdin)]));
    let run = "/opt/py/lib/python3.11/multiprocessing/process.py|BaseProcess.run|108|";
    assert!(opened_by(&[
        (Python, "/srv/app/run.py|task|5|"),
        library(run)
    ]));
}

#[test]
fn r19_with_nothing_else_left_the_library_is_named() {
    let library = "/srv/.venv/lib/python3.11/site-packages/celery/worker.py|start|4|";
    let found = blamed(&[(Native, "|||/lib/libc.so.6"), (Python, library)]);
    assert_eq!(found.as_deref(), Some("start"));
    assert_eq!(culprit(&[]), None);
    assert!(culprit(&stack(&[(Native, "|||/lib/libc.so.6")])).is_some());
}

#[test]
fn r19_a_line_that_is_also_used_well_is_told_by_its_caller() {
    let open = (C, "main.c|open_log|10|/srv/app");
    let bad = stack(&[
        open,
        (C, "main.c|on_error|50|/srv/app"),
        (C, "main.c|main|90|/srv/app"),
    ]);
    let good = stack(&[
        open,
        (C, "main.c|serve|40|/srv/app"),
        (C, "main.c|main|90|/srv/app"),
    ]);
    let (bad, good) = ([bad], [good]);
    let found = leaking_caller_frame(&bad, &good).unwrap();
    assert_eq!(found.function.as_deref(), Some("on_error"));
    assert_eq!(
        leaking_caller_frame(&bad, &bad),
        None,
        "nothing tells them apart"
    );
    let first = leaking_caller_frame(&bad, &[]).unwrap();
    assert_eq!(first.function.as_deref(), Some("open_log"));
}

#[test]
fn r19_the_frame_that_tells_is_the_one_that_most_leaks_share() {
    let of = |caller: &str, outer: &str| {
        let caller = format!("main.c|{caller}|1|/srv/app");
        let outer = format!("main.c|{outer}|2|/srv/app");
        stack(&[
            (C, "main.c|open_log|10|/srv/app"),
            (C, &caller),
            (C, &outer),
        ])
    };
    let leaking = [of("retry", "job"), of("retry", "timer"), of("once", "job")];
    let healthy = [of("serve", "loop")];
    let found = leaking_caller_frame(&leaking, &healthy).unwrap();
    assert_eq!(found.function.as_deref(), Some("retry"));
}

#[test]
fn where_only_a_runtime_is_left_its_own_language_tells_more_than_its_machine_code() {
    let frames = [
        (
            C,
            "./Modules/socketmodule.c|sock_close|3193|/opt/lib/libpython3.11.so.1.0",
        ),
        (Python, "/usr/lib/python3.11/http/server.py|serve|9|"),
    ];
    assert_eq!(blamed(&frames).as_deref(), Some("serve"));
    assert_eq!(blamed(&frames[..1]).as_deref(), Some("sock_close"));
}

/// A server that a console script started, with nothing of the application on the stack.
const LAUNCHED: &[(Language, &str)] = &[
    (
        Python,
        "/opt/py/lib/python3.11/socket.py|socket.__init__|232|",
    ),
    (
        Python,
        "/opt/py/lib/python3.11/asyncio/base_events.py|create_server|1500|",
    ),
    (
        Python,
        "/srv/env/lib/python3.11/site-packages/uvicorn/server.py|startup|162|",
    ),
    (
        Python,
        "/srv/env/lib/python3.11/site-packages/click/core.py|invoke|783|",
    ),
    (Python, "/srv/env/bin/uvicorn|<module>|8|"),
];

#[test]
fn a_console_script_is_never_the_culprit() {
    assert_eq!(blamed(LAUNCHED).as_deref(), Some("startup"));
    assert!(!is_programs(&stack(LAUNCHED)));
    for launcher in [
        "/usr/bin/celery|<module>|8|",
        "/usr/local/bin/gunicorn|<module>|8|",
        "/home/ann/.local/bin/flask|<module>|8|",
        "/srv/tool.pex/__main__.py|<module>|3|",
        "/srv/tool.pyz/__main__.py|<module>|3|",
        "/root/.pex/unzipped_pexes/ab12/__main__.py|<module>|3|",
    ] {
        let frames = [
            (Python, "/opt/py/lib/python3.11/socket.py|accept|232|"),
            (Python, launcher),
        ];
        assert_eq!(blamed(&frames).as_deref(), Some("accept"), "{launcher}");
    }
}

#[test]
fn a_console_script_is_known_by_whatever_path_it_was_called() {
    for launcher in [
        "/srv/app/../env/bin/uvicorn|<module>|8|",
        "/srv/./env/bin/uvicorn|<module>|8|",
        "/home/ann/link/bin/uvicorn|<module>|8|",
        "env/bin/uvicorn|<module>|8|",
    ] {
        let mut frames = LAUNCHED[..4].to_vec();
        frames.push((Python, launcher));
        assert_eq!(blamed(&frames).as_deref(), Some("startup"), "{launcher}");
        assert!(!is_programs(&stack(&frames)), "{launcher}");
    }
}

#[test]
fn a_script_of_ones_own_in_a_bin_dir_is_ones_own() {
    for own in [
        "/srv/app/bin/server|<module>|8|",
        "/srv/env/bin/serve.py|<module>|8|",
        "/srv/env/bin/worker|handle|40|",
    ] {
        let library = (
            Python,
            "/srv/env/lib/python3.11/site-packages/httpx/x.py|get|3|",
        );
        let found = culprit(&stack(&[library, (Python, own)])).cloned();
        assert_eq!(found, Some(frame(Python, own)), "{own}");
    }
}

#[test]
fn the_line_that_created_a_task_comes_before_the_launcher() {
    let mut frames = vec![
        (
            Python,
            "/srv/env/lib/python3.11/site-packages/anyio/_core/_sockets.py|try_connect|199|",
        ),
        (
            Python,
            "/srv/env/lib/python3.11/site-packages/httpx/_client.py|get|1768|",
        ),
        (Python, "/srv/app.py|leak|15|"),
    ];
    frames.extend(LAUNCHED);
    assert_eq!(blamed(&frames).as_deref(), Some("leak"));
    assert!(is_programs(&stack(&frames)));
}

#[test]
fn a_function_of_an_interpreter_that_is_not_read_is_no_culprit() {
    let frames = [
        (
            Native,
            "./io/open64.c|__open64|41|/lib/x86_64-linux-gnu/libc.so.6",
        ),
        (
            Native,
            "|PerlIOUnix_open||/usr/lib/x86_64-linux-gnu/libperl.so.5.36",
        ),
        (Native, "|perl_run||/usr/bin/perl"),
        (Native, "|main||/usr/bin/perl"),
    ];
    assert_eq!(place(&stack(&frames)), None);
    assert_eq!(unread_language(&stack(&frames)), Some("Perl"));
    let local = (
        Native,
        "|rb_sysopen||/home/ann/.rbenv/versions/3.2.0/bin/ruby",
    );
    assert_eq!(place(&stack(&[local])), None);
    // A user-written extension has its own line.
    let own = (C, "/srv/ext/store.c|store_open|12|/srv/ext/store.so");
    assert_eq!(blamed(&[local, own]).as_deref(), Some("store_open"));
}

fn native(module: &str, function: Option<&str>, file: Option<&str>) -> Frame {
    Frame {
        file: file.map(Into::into),
        function: function.map(ToOwned::to_owned),
        line: file.map(|_| 7),
        module: (!module.is_empty()).then(|| module.into()),
        language: Native,
    }
}

fn java(function: &str) -> Frame {
    Frame {
        language: Java,
        ..native("", Some(function), Some("X.java"))
    }
}

#[test]
fn a_program_of_ones_own_is_known_with_and_without_symbols() {
    let libc = native("/usr/lib/x86_64-linux-gnu/libc.so.6", Some("fopen"), None);
    let bare = native("/home/me/build/server", None, None);
    let full = native("/home/me/build/server", Some("main"), Some("/src/main.c"));
    assert!(is_programs(&[libc.clone(), bare]));
    assert!(is_programs(&[libc.clone(), full]));
    assert!(!is_programs(&[libc]));
    assert!(!is_programs(&[]));
}

#[test]
fn a_program_without_names_is_blamed_and_not_the_library_that_called_it() {
    let bare = native("/home/me/build/server", None, None);
    let start = native(
        "/lib/libc.so.6",
        Some("__libc_start_main"),
        Some("./csu/x.c"),
    );
    let blamed = place(&[bare, start.clone()]).unwrap();
    assert_eq!(blamed.file, Some("/home/me/build/server".into()));
    let line = native("/home/me/build/server", Some("main"), Some("/src/main.c"));
    assert_eq!(place(&[line, start]).unwrap().line, Some(7));
}

#[test]
fn interpreters_of_the_system_and_generated_code_are_not_the_users() {
    assert!(!is_programs(&[native(
        "/usr/bin/bash",
        Some("open_script"),
        None
    )]));
    assert!(!is_programs(&[native("/usr/bin/dash", None, None)]));
    assert!(!is_programs(&[native("", Some("0x7f0012"), None)]));
    // With its source available the user can fix it.
    let local = native("/usr/local/bin/mine", Some("main"), Some("/src/mine.c"));
    assert!(is_programs(&[local]));
}

#[test]
fn what_the_class_loader_opens_on_the_way_is_javas_own() {
    let loader = java("jdk.internal.loader.URLClassPath$JarLoader.ensureOpen");
    assert!(!is_programs(&[loader, java("Main.main")]));
    assert!(is_programs(&[
        java("java.nio.file.Files.lines"),
        java("Main.main")
    ]));
}

/// Every Java program that closed a connection failed its check.
#[test]
fn what_a_class_of_the_jdk_opens_when_it_is_initialized_is_javas_own() {
    let (init, close) = ("sun.nio.ch.FileDispatcherImpl", "java.net.Socket.close");
    let class_start = java(&format!("{init}.<clinit>"));
    let native_init = java(&format!("{init}.init"));
    let main = java("Main.main");
    let stack = [native_init, class_start, java(close), main.clone()];
    assert!(!is_programs(&stack));
    let own = java("Main.<clinit>");
    assert!(is_programs(&[java("java.nio.file.Files.lines"), own, main]));
}

#[test]
fn the_injected_library_is_passed_over() {
    let ours = "|open64||/dev/shm/fdguard-trace-0-Ab1/libfdguard_preload.so";
    let leak = (C, "m.c|leak|4|/srv/app");
    assert_eq!(blamed(&[(Native, ours), leak]).as_deref(), Some("leak"));
}

#[test]
fn a_library_that_is_linked_into_the_program_is_passed_over() {
    let library = (Native, "|open||/srv/static");
    let leak = (C, "m.c|leak|4|/srv/static");
    assert_eq!(
        blamed(&[library, (Native, "|__open_nocancel||/srv/static"), leak]).as_deref(),
        Some("leak")
    );
    // Without lines nothing distinguishes them.
    let bare = (Native, "|leak||/srv/static");
    assert_eq!(blamed(&[library, bare]).as_deref(), Some("open"));
    // The program's own function without a line, called by code that has lines.
    let libc = (Native, "|open64||/usr/lib/libc.so.6");
    let own = (Native, "|helper||/srv/app");
    let caller = (C, "a.c|main|9|/srv/app");
    assert_eq!(blamed(&[libc, own, caller]).as_deref(), Some("helper"));
}

/// Regression: in a program with glibc 2.31, whose files the library does not know, an address of
/// the C library was blamed instead of the Python line.
#[test]
fn an_address_in_no_file_is_blamed_only_if_nothing_else_is_left() {
    let address = (Native, "|0x7fb1bb4ce07c||");
    let line = (Python, "/srv/app.py|leak|4|");
    assert_eq!(blamed(&[address, address, line]).as_deref(), Some("leak"));
    assert_eq!(blamed(&[address]).as_deref(), Some("0x7fb1bb4ce07c"));
}
