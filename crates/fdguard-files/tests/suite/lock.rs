//! Locks with a deadline that name their holder.

use std::time::Duration;

use fdguard_files::{Error, LockFile};
use testkit::ScriptedProcess;

#[test]
fn r46_two_of_us_exclude_each_other_and_the_file_goes_with_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let lock = LockFile::acquire(&path, Duration::ZERO).unwrap();
    let second = LockFile::acquire(&path, Duration::from_millis(20));
    assert!(
        matches!(&second, Err(Error::Locked { holder, .. }) if holder.contains("this process")),
        "{second:?}"
    );
    drop(lock);
    assert!(!path.exists());
    drop(LockFile::acquire(&path, Duration::ZERO).unwrap());
}

#[test]
fn r46_the_holder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let script = "import fcntl,struct,sys\nf=open(sys.argv[1],'w+')\nfcntl.fcntl(f,37,struct.pack('hhqqi4x',1,0,0,0,0))\nprint('ready',flush=True)\nsys.stdin.read()";
    let child = ScriptedProcess::python(script, &path);
    let refused = LockFile::acquire(&path, Duration::from_millis(20))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&format!("python3 (pid {}", child.id())),
        "{refused}"
    );
    // The waiter gets it as soon as the holder releases it, without another attempt by the caller.
    let waiting =
        std::thread::spawn(move || LockFile::acquire(&path, Duration::from_secs(60)).is_ok());
    drop(child);
    assert!(waiting.join().unwrap());
}

#[test]
fn r46_many_threads_take_turns_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let counter = dir.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let _lock = LockFile::acquire(&path, Duration::from_secs(60)).unwrap();
                    let n: u32 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
                    std::fs::write(&counter, (n + 1).to_string()).unwrap();
                }
            });
        }
    });
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "100");
}
