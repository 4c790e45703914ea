//! Sockets and stored descriptors in real programs. A shell moves the test's own socket to number
//! 3, as a service manager would.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Output, Stdio};

use fdguard_process::listen::{Listen, activation};
use fdguard_process::notify::{FdStore, NotifyServer};

const ROLE: &str = "FDGUARD_TEST_ROLE";

/// Runs this same test again as the program, with `stdin` as numbers 3 and 4, after these settings.
fn as_program(test: &str, settings: &str, listener: &TcpListener) -> Output {
    let script = format!("{settings} exec \"$0\" --exact {test} --nocapture 3<&0 4<&0 </dev/null");
    Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(ROLE, "program")
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(
            listener.try_clone().unwrap(),
        )))
        .output()
        .unwrap()
}

/// Reports what the program found, for the test to read.
fn report() {
    let taken = activation::from_environment();
    for (fd, name) in &taken.fds {
        let cloexec = rustix::io::fcntl_getfd(fd).unwrap();
        let cloexec = cloexec.contains(rustix::io::FdFlags::CLOEXEC);
        let high = fd.as_raw_fd() >= 100;
        let local = TcpListener::from(fd.try_clone().unwrap()).local_addr();
        println!("taken {name} {} {cloexec} {high}", local.unwrap().port());
    }
    for gap in &taken.gaps {
        println!("gap {}", gap.why);
    }
    let low = std::path::Path::new("/proc/self/fd/3").exists();
    println!(
        "again {} low {low}",
        activation::from_environment().fds.len()
    );
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let told = |line: &&str| {
        ["taken ", "gap ", "again "]
            .iter()
            .any(|it| line.starts_with(it))
    };
    text.lines().filter(told).map(str::to_owned).collect()
}

#[test]
fn sockets_of_the_parent_are_taken_once_close_on_exec_and_high() {
    if std::env::var_os(ROLE).is_some() {
        return report();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let test = "suite::sockets::sockets_of_the_parent_are_taken_once_close_on_exec_and_high";
    let settings = "LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:admin";
    assert_eq!(
        lines(&as_program(test, settings, &listener)),
        [
            format!("taken web {port} true true"),
            format!("taken admin {port} true true"),
            "again 0 low false".to_owned()
        ]
    );

    let promised = lines(&as_program(test, "LISTEN_PID=$$ LISTEN_FDS=3", &listener));
    assert!(promised[2].starts_with("gap ") && promised[2].contains("descriptor 5"));

    let others = lines(&as_program(test, "LISTEN_PID=1 LISTEN_FDS=2", &listener));
    assert_eq!(
        others,
        ["again 0 low true"],
        "left alone: they are not ours"
    );
}

#[test]
fn a_socket_that_we_bound_serves_in_one_program_after_another() {
    if !testkit::have("python3") {
        return testkit::skip("no python3: nobody to take our socket");
    }
    let bound = "web=tcp:0".parse::<Listen>().unwrap().bind().unwrap();
    let listener = TcpListener::from(bound.fd.try_clone().unwrap());
    let address = listener.local_addr().unwrap();
    let serve = "import os, socket\n\
                 assert os.environ['LISTEN_PID'] == str(os.getpid())\n\
                 s = socket.socket(fileno=3)\n\
                 c, _ = s.accept()\n\
                 c.sendall(os.environ['WHO'].encode())";
    for who in ["first", "second"] {
        // The connection is made while no program runs: it waits in the socket.
        let mut client = TcpStream::connect(address).unwrap();
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web exec python3 -c \"$0\" 3<&0";
        let status = Command::new("sh")
            .args(["-c", script, serve])
            .env("WHO", who)
            .stdin(bound.fd.try_clone().unwrap())
            .status();
        assert!(status.unwrap().success());
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, who);
    }
}

#[test]
fn a_stored_descriptor_outlives_its_program_and_reaches_the_next() {
    if !testkit::have("python3") {
        return testkit::skip("no python3: nobody to store a descriptor");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = NotifyServer::open_in(dir.path()).unwrap();
    let mut store = FdStore::default();
    let give = "import array, os, socket, tempfile\n\
                f = tempfile.TemporaryFile()\n\
                f.write(b'state of the first'); f.flush(); f.seek(0)\n\
                s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                s.sendmsg([b'FDSTORE=1\\nFDNAME=state'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [f.fileno()]))], 0, os.environ['NOTIFY_SOCKET'])";
    let mut first = Command::new("python3")
        .args(["-c", give])
        .env("NOTIFY_SOCKET", server.path())
        .spawn()
        .unwrap();
    assert!(first.wait().unwrap().success());
    for heard in server.poll(|pid| pid == first.id()) {
        store.hear(&heard.message, heard.fds);
    }
    let handed = store.handed();
    assert_eq!(handed[0].name.as_deref(), Some("state"));
    let take = "import os; print(os.read(3, 100).decode())";
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=state exec python3 -c \"$0\" 3<&0";
    let second = Command::new("sh")
        .args(["-c", script, take])
        .stdin(handed[0].fd.try_clone().unwrap())
        .output()
        .unwrap();
    assert_eq!(second.stdout, b"state of the first\n");
}

#[test]
fn an_own_parent_hears_a_client_that_a_real_program_answers() {
    if !testkit::have("python3") {
        return testkit::skip("no python3: nobody to be the parent");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let hear = "import socket, sys\n\
                s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
                s.bind(sys.argv[1]); print('bound', flush=True)\n\
                print(repr(s.recv(4096)), flush=True)";
    let mut parent = Command::new("python3")
        .args(["-c", hear])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "bound");
    let mut client = fdguard_process::notify::NotifyClient::at(path.as_os_str()).unwrap();
    let message = fdguard_process::notify::NotifyMessage {
        ready: true,
        status: Some("up".to_owned()),
        ..Default::default()
    };
    assert_eq!(client.tell(&message, std::time::Instant::now()), None);
    assert_eq!(lines.next().unwrap().unwrap(), r"b'READY=1\nSTATUS=up'");
    assert!(parent.wait().unwrap().success());
}
