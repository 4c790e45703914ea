use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{DIR, NotifyServer, ReceivedMessage};

fn server() -> (tempfile::TempDir, NotifyServer) {
    let dir = tempfile::tempdir().unwrap();
    let server = NotifyServer::open_in(dir.path()).unwrap();
    (dir, server)
}

fn wait(server: &NotifyServer) {
    let fd = server.fd();
    let limit = Timespec::try_from(Duration::from_secs(60)).unwrap();
    let happened = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(happened, 1, "nothing was said for a minute");
}

fn hear(server: &mut NotifyServer, allow: impl Fn(u32) -> bool) -> Vec<ReceivedMessage> {
    wait(server);
    server.poll(allow)
}

/// A Python program that implements the protocol itself.
fn speak(server: &NotifyServer, code: &str) -> Option<Child> {
    if !testkit::have("python3") {
        testkit::skip("no python3: nobody to speak to the notification socket");
        return None;
    }
    let code = format!(
        "import array, os, socket, sys\n\
         s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         def say(text, fds=()):\n\
         \x20   s.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else [], 0, os.environ['NOTIFY_SOCKET'])\n\
         {code}"
    );
    let child = Command::new("python3")
        .args(["-c", &code])
        .env("NOTIFY_SOCKET", server.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Some(child.unwrap())
}

#[test]
fn a_program_is_heard_with_its_own_pid() {
    let (_dir, mut server) = server();
    let Some(mut child) = speak(&server, "say(b'READY=1\\nSTATUS=up')") else {
        return;
    };
    let heard = hear(&mut server, |_| true);
    child.wait().unwrap();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].pid, child.id());
    assert!(heard[0].message.ready && heard[0].fds.is_empty());
    assert_eq!(heard[0].message.status.as_deref(), Some("up"));
}

#[test]
fn who_may_not_speak_is_counted_and_not_heard() {
    let (_dir, mut server) = server();
    let Some(mut child) = speak(&server, "say(b'READY=1', [0, 1])") else {
        return;
    };
    let main = child.id();
    let heard = hear(&mut server, |pid| pid != main);
    child.wait().unwrap();
    assert!(heard.is_empty());
    assert_eq!((server.refused(), server.truncated()), (1, 0));
}

#[test]
fn descriptors_come_close_on_exec_and_are_the_same_files() {
    let (dir, mut server) = server();
    let file = dir.path().join("state");
    std::fs::write(&file, "x").unwrap();
    let code = format!(
        "f = open({:?}); say(b'FDSTORE=1\\nFDNAME=state', [f.fileno()])",
        file.display()
    );
    let Some(mut child) = speak(&server, &code) else {
        return;
    };
    let heard = hear(&mut server, |_| true);
    child.wait().unwrap();
    let fd = &heard[0].fds[0];
    let flags = rustix::io::fcntl_getfd(fd).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let stat = rustix::fs::fstat(fd).unwrap();
    assert_eq!(stat.st_ino, rustix::fs::stat(&file).unwrap().st_ino);
}

#[test]
fn a_barrier_ends_when_what_was_heard_is_dropped() {
    let (_dir, mut server) = server();
    let code = "r, w = os.pipe()\n\
                say(b'STATUS=first')\n\
                say(b'BARRIER=1', [w])\n\
                os.close(w)\n\
                print('sent', flush=True)\n\
                os.read(r, 1)\n\
                print('done', flush=True)\n";
    let Some(mut child) = speak(&server, code) else {
        return;
    };
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "sent");
    let heard = hear(&mut server, |_| true);
    assert_eq!(heard.len(), 2);
    assert!(heard[1].message.barrier && heard[1].fds.is_empty());
    assert!(child.try_wait().unwrap().is_none(), "it waits for us");
    drop(heard);
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    assert!(child.wait().unwrap().success());
}

#[test]
fn systemd_notify_itself_is_heard_and_its_barrier_answered() {
    if !testkit::have("systemd-notify") {
        return testkit::skip("no systemd-notify");
    }
    let (_dir, mut server) = server();
    let mut child = Command::new("systemd-notify")
        .args(["--ready", "--status=from systemd-notify"])
        .env("NOTIFY_SOCKET", server.path())
        .spawn()
        .unwrap();
    let mut statuses = Vec::new();
    while child.try_wait().unwrap().is_none() {
        let fd = server.fd();
        // Woken by a message, or check again: the program may end without another message.
        let limit = Timespec::try_from(Duration::from_millis(50)).unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap();
        for heard in server.poll(|_| true) {
            statuses.extend(heard.message.ready.then_some(heard.message.status));
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(statuses, [Some("from systemd-notify".to_owned())]);
}

#[test]
fn a_message_that_is_too_long_is_not_half_believed() {
    let (_dir, mut server) = server();
    let code = "say(b'READY=1\\nSTATUS=' + b'x' * 5000)\nsay(b'STATUS=short')";
    let Some(mut child) = speak(&server, code) else {
        return;
    };
    child.wait().unwrap();
    let heard = hear(&mut server, |_| true);
    assert_eq!(heard.len(), 1);
    assert!(!heard[0].message.ready);
    assert_eq!(server.truncated(), 1);
}

#[test]
fn the_dir_is_ours_alone_and_goes_with_the_server() {
    let (dir, server) = server();
    let inside = server.path().parent().unwrap().to_owned();
    let mode = inside.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(server);
    assert!(!inside.exists());
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_turn_without_words_gives_nothing_at_once() {
    let (_dir, mut server) = server();
    assert!(server.poll(|_| true).is_empty());
}

#[test]
fn what_a_killed_server_left_is_swept_and_living_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let living = NotifyServer::open_in(dir.path()).unwrap();
    let dead = dir.path().join(format!("{DIR}1.0"));
    std::fs::create_dir(&dead).unwrap();
    drop(std::os::unix::net::UnixDatagram::bind(dead.join("socket")).unwrap());
    let just_made = dir.path().join(format!("{DIR}1.1"));
    std::fs::create_dir(&just_made).unwrap();
    let other = NotifyServer::open_in(dir.path()).unwrap();
    assert!(!dead.exists());
    assert!(living.path().exists() && other.path().exists() && just_made.exists());
    assert_ne!(living.path(), other.path());
}
