//! Whether a thread can run the loader now: judged by the functions on its stack.
//!
//! The loader takes its own lock and the allocator's. A thread inside of either would wait for
//! itself. Inner functions of the C library have no names, so its entry points are judged: only
//! those of the lists below are known to hold nothing.

/// A frame, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) place: Place,
    /// The names of its function, if it is exported.
    pub(crate) names: Vec<Vec<u8>>,
}

/// Where a frame's code is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Libc,
    Loader,
    /// A library that is an allocator.
    Allocator(String),
    /// A program or library that defines `malloc` beside other functions.
    OwnAllocator(String),
    /// The program, another library, or code without a file.
    Other,
    /// The kernel's library: clock_gettime and the like.
    Vdso,
}

/// How a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackEnd {
    /// In the first function of the thread.
    Root,
    /// In code that was made while the program runs: it has no tables.
    Generated,
    /// It could not be followed.
    Broken,
    /// It has more frames than are followed.
    Deep,
}

/// Why a thread cannot be borrowed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// The function in the way.
    pub(crate) function: String,
}

/// The system call that a thread was stopped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It reads or writes.
    InputOutput,
    /// It waits for a condition, a semaphore or a thread. The C library's own locks, and with them
    /// the allocator's, wait with another operation (FUTEX_WAIT instead of FUTEX_WAIT_BITSET).
    Condition,
    /// Another one, or none.
    Other,
}

/// Judges a stack.
pub(crate) fn judge(frames: &[Frame], end: StackEnd, waiting: Waiting) -> Result<(), Obstacle> {
    if matches!(end, StackEnd::Broken) {
        return Err(obstacle("a function without unwind table"));
    }
    for frame in frames {
        match &frame.place {
            Place::Loader => return Err(obstacle(&shown(frame, "the dynamic loader"))),
            Place::Allocator(name) => return Err(obstacle(&shown(frame, name))),
            _ if frame.names.iter().any(|name| is_allocator(name)) => {
                return Err(obstacle(&shown(frame, "an allocator")));
            }
            _ => {}
        }
    }
    check_own_allocator(frames, waiting)?;
    for (at, frame) in frames.iter().enumerate() {
        let next = frames.get(at + 1);
        let leaves_libc =
            frame.place == Place::Libc && next.is_none_or(|next| next.place != Place::Libc);
        // The last functions of a stack start the thread; they have run before.
        let is_root = next.is_none() && end == StackEnd::Root && has_caller_of_own(frames);
        // sem_wait ends in a jump to an inner function.
        let is_innermost = frames.iter().take(at).all(|one| one.place == Place::Libc);
        let is_wait = is_innermost && frame.names.is_empty() && waiting == Waiting::Condition;
        if leaves_libc && !is_root && !is_wait && !is_allowed(frame, waiting) {
            return Err(obstacle(&shown(
                frame,
                "an inner function of the C library",
            )));
        }
    }
    Ok(())
}

/// In a module with an allocator the inner functions of it have no names, and `malloc` may have
/// ended in a jump to one: what its functions called last must be something that allocators do not
/// call.
fn check_own_allocator(frames: &[Frame], waiting: Waiting) -> Result<(), Obstacle> {
    let mut called: Option<&Frame> = None;
    for frame in frames {
        if let Place::OwnAllocator(name) = &frame.place {
            let is_free = called.is_some_and(|called| match called.place {
                Place::Libc => is_wait(called, waiting),
                Place::OwnAllocator(_) | Place::Other => true,
                _ => false,
            });
            if !is_free {
                return Err(obstacle(&format!("{name}, which has its own allocator,")));
            }
        }
        called = Some(frame);
    }
    Ok(())
}

/// Whether a function of the C library waits for something that is not a lock.
fn is_wait(frame: &Frame, waiting: Waiting) -> bool {
    let is_condition = frame.names.is_empty() && waiting == Waiting::Condition;
    let is_input = waiting == Waiting::InputOutput && is_in(frame, STREAMS);
    is_condition || is_input || is_in(frame, WAITS) || is_in(frame, RECEIVES)
}

/// Whether the stack has a frame outside of the C library.
fn has_caller_of_own(frames: &[Frame]) -> bool {
    let is_own = |frame: &Frame| matches!(frame.place, Place::Other | Place::OwnAllocator(_));
    frames.iter().any(is_own)
}

fn is_allowed(frame: &Frame, waiting: Waiting) -> bool {
    let lists = [WAITS, YIELDS, RECEIVES, WRAPPERS];
    lists.iter().any(|list| is_in(frame, list))
        || (waiting == Waiting::InputOutput && is_in(frame, STREAMS))
}

fn is_in(frame: &Frame, list: &str) -> bool {
    let mut words = list.split_ascii_whitespace();
    words.any(|word| frame.names.iter().any(|name| name == word.as_bytes()))
}

/// Whether a function is named like one of an allocator.
pub(crate) fn is_allocator(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 14] = [
        b"malloc",
        b"calloc",
        b"realloc",
        b"free",
        b"cfree",
        b"memalign",
        b"aligned_alloc",
        b"posix_memalign",
        b"valloc",
        b"pvalloc",
        b"malloc_trim",
        b"mallinfo",
        b"reallocarray",
        b"malloc_usable_size",
    ];
    const PREFIXES: [&[u8]; 13] = [
        b"je_",
        b"_rjem_",
        b"tc_malloc",
        b"tc_free",
        b"tc_new",
        b"tc_delete",
        b"mi_malloc",
        b"mi_free",
        b"mi_heap",
        b"__libc_malloc",
        b"__libc_free",
        b"_Znw",
        b"_Zna",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a library is an allocator by its file name.
pub(crate) fn is_allocator_file(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 7] = [
        b"libjemalloc",
        b"libtcmalloc",
        b"libmimalloc",
        b"libhoard",
        b"librpmalloc",
        b"libsnmalloc",
        b"libc_malloc_debug",
    ];
    NAMES.iter().any(|known| name.starts_with(known))
}

fn shown(frame: &Frame, otherwise: &str) -> String {
    let shortest = frame.names.iter().min_by_key(|name| name.len());
    shortest.map_or_else(
        || otherwise.to_owned(),
        |name| String::from_utf8_lossy(name).into_owned(),
    )
}

fn obstacle(function: &str) -> Obstacle {
    Obstacle {
        function: function.to_owned(),
    }
}

/// Functions that wait and hold nothing meanwhile, and the first function of a program.
const WAITS: &str = "
    __libc_start_main clone __clone
    poll __poll ppoll __ppoll_chk __poll_chk select __select pselect
    epoll_wait epoll_pwait epoll_pwait2
    nanosleep __nanosleep clock_nanosleep __clock_nanosleep usleep sleep pause
    pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait
    sem_wait sem_timedwait sem_clockwait pthread_join pthread_timedjoin_np pthread_clockjoin_np
    pthread_barrier_wait thrd_join thrd_sleep cnd_wait cnd_timedwait
    sigsuspend __sigsuspend sigwait sigwaitinfo sigtimedwait __sigtimedwait
    wait waitpid __waitpid wait3 wait4 waitid __wait
";

/// What the locks of allocators use, too.
const YIELDS: &str = "syscall sched_yield __sched_yield thrd_yield";

/// Functions that wait for data.
const RECEIVES: &str = "
    read __read readv accept accept4 recv recvfrom recvmsg recvmmsg __recv_chk __recvfrom_chk
";

/// Plain system calls, and calls that read a clock.
const WRAPPERS: &str = "
    pread pread64 __pread64 preadv preadv64 preadv2 preadv64v2
    write __write writev pwrite pwrite64 __pwrite64 pwritev pwritev64 pwritev2 pwritev64v2
    open __open open64 __open64 openat openat64 creat creat64 close __close close_range
    connect __connect send __send sendto sendmsg sendmmsg bind listen socket socketpair shutdown
    setsockopt getsockopt getsockname getpeername pipe __pipe pipe2 dup dup2 __dup2 dup3
    fcntl __fcntl fcntl64 ioctl __ioctl flock lockf lockf64 fsync fdatasync sync syncfs
    ftruncate ftruncate64 truncate truncate64 lseek __lseek lseek64 fallocate fallocate64
    posix_fadvise posix_fadvise64 sendfile sendfile64 splice tee vmsplice copy_file_range
    stat stat64 fstat fstat64 lstat lstat64 fstatat fstatat64 statx __xstat __fxstat __lxstat
    __xstat64 __fxstat64 __lxstat64 statfs statfs64 fstatfs fstatfs64
    access faccessat unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat
    symlink symlinkat readlink readlinkat chmod fchmod fchmodat chown fchown lchown fchownat
    chdir fchdir utimensat futimens mknod mknodat mkfifo mkfifoat chroot umask
    epoll_create epoll_create1 epoll_ctl eventfd eventfd_read eventfd_write signalfd
    timerfd_create timerfd_settime timerfd_gettime inotify_init inotify_init1 inotify_add_watch
    inotify_rm_watch memfd_create
    mmap mmap64 __mmap munmap __munmap mprotect __mprotect madvise __madvise mremap msync mlock
    munlock mincore
    getpid __getpid getppid gettid getuid geteuid getgid getegid getpgid getpgrp getsid kill
    tgkill getrusage getrlimit getrlimit64 setrlimit setrlimit64 prlimit prlimit64 getpriority
    setpriority sched_getaffinity sched_setaffinity sched_getcpu uname times
    sigprocmask pthread_sigmask sigaction __sigaction sigpending sigaltstack
    clock_gettime __clock_gettime clock_getres gettimeofday __gettimeofday time clock
    semop semtimedop semctl semget msgrcv msgsnd msgget msgctl shmget shmat shmdt shmctl
    getrandom getentropy setitimer getitimer alarm timer_settime timer_gettime
    process_vm_readv process_vm_writev io_getevents prctl personality ptrace
";

/// Buffered input and output: a system call that they make holds the stream's lock, which the
/// loader does not take. Outside of one they may be in the allocator. Many end in a jump to the
/// inner functions of the second part, which are then what the program seems to have called.
const STREAMS: &str = "
    fgets fgets_unlocked fgetc fgetc_unlocked getc getc_unlocked _IO_getc getchar
    getchar_unlocked getline __getline getdelim __getdelim fread fread_unlocked _IO_fread
    _IO_fgets scanf fscanf __isoc99_scanf __isoc99_fscanf fgetwc getwc
    fwrite fwrite_unlocked _IO_fwrite fputs fputs_unlocked _IO_fputs puts _IO_puts fputc putc
    putchar _IO_putc fflush fflush_unlocked _IO_fflush printf fprintf _IO_printf _IO_fprintf
    vprintf vfprintf __printf_chk __fprintf_chk __vfprintf_chk __underflow __uflow __overflow
    perror fclose getwchar fgetws
    _IO_default_uflow _IO_wdefault_uflow _IO_file_underflow _IO_wfile_underflow _IO_file_read
    _IO_sgetn _IO_default_xsgetn _IO_file_xsgetn _IO_getline _IO_getline_info
    _IO_file_overflow _IO_wfile_overflow _IO_file_write _IO_file_xsputn _IO_wfile_xsputn
    _IO_do_write _IO_wdo_write _IO_file_sync _IO_wfile_sync
";

#[cfg(test)]
mod tests {
    use super::{Frame, Place, StackEnd, Waiting, judge};

    fn libc(name: &str) -> Frame {
        let names = if name.is_empty() {
            Vec::new()
        } else {
            vec![name.as_bytes().to_vec()]
        };
        Frame {
            place: Place::Libc,
            names,
        }
    }

    fn own() -> Frame {
        Frame {
            place: Place::Other,
            names: Vec::new(),
        }
    }

    fn reason(frames: &[Frame], end: StackEnd, waiting: Waiting) -> Option<String> {
        let judged = judge(frames, end, waiting);
        judged.err().map(|obstacle| obstacle.function)
    }

    #[test]
    fn a_waiting_thread_is_safe() {
        let main = [libc("poll"), own(), libc("__libc_start_main"), own()];
        assert_eq!(reason(&main, StackEnd::Root, Waiting::Other), None);
        let thread = [
            libc(""),
            libc("pthread_cond_wait"),
            own(),
            libc(""),
            libc(""),
        ];
        assert_eq!(reason(&thread, StackEnd::Root, Waiting::Other), None);
        let busy = [own(), own(), libc("__libc_start_main"), own()];
        assert_eq!(reason(&busy, StackEnd::Root, Waiting::Other), None);
        let generated = [libc("read"), own(), own()];
        assert_eq!(
            reason(&generated, StackEnd::Generated, Waiting::InputOutput),
            None
        );
    }

    #[test]
    fn an_allocator_is_in_the_way_wherever_it_is() {
        let inner = [
            libc(""),
            libc("malloc"),
            own(),
            libc("__libc_start_main"),
            own(),
        ];
        assert_eq!(
            reason(&inner, StackEnd::Root, Waiting::Other).unwrap(),
            "malloc"
        );
        let stream = [libc("malloc"), libc(""), libc("fgets"), own()];
        assert_eq!(
            reason(&stream, StackEnd::Root, Waiting::InputOutput).unwrap(),
            "malloc"
        );
        let outer = [libc("read"), libc("fgets"), own()];
        assert_eq!(reason(&outer, StackEnd::Root, Waiting::InputOutput), None);
        assert_eq!(
            reason(&outer, StackEnd::Root, Waiting::Other).unwrap(),
            "fgets"
        );
        let jemalloc = Frame {
            place: Place::Allocator("libjemalloc.so.2".to_owned()),
            names: Vec::new(),
        };
        let waits = [libc("sched_yield"), jemalloc, own()];
        assert_eq!(
            reason(&waits, StackEnd::Root, Waiting::Other).unwrap(),
            "libjemalloc.so.2"
        );
    }

    #[test]
    fn a_program_with_its_own_allocator_must_wait() {
        let own = || Frame {
            place: Place::OwnAllocator("server".to_owned()),
            names: Vec::new(),
        };
        let start = || libc("__libc_start_main");
        let waits = [libc("epoll_wait"), own(), own(), start(), own()];
        assert_eq!(reason(&waits, StackEnd::Root, Waiting::Other), None);
        for inner in [own(), libc("sched_yield"), libc("munmap"), libc("")] {
            let works = [inner, own(), start(), own()];
            let reason = reason(&works, StackEnd::Root, Waiting::Other);
            assert!(reason.unwrap().starts_with("server"));
        }
    }

    #[test]
    fn a_semaphore_is_not_a_lock() {
        let waits = [libc(""), libc(""), own(), libc("__libc_start_main"), own()];
        assert_eq!(reason(&waits, StackEnd::Root, Waiting::Condition), None);
        assert!(reason(&waits, StackEnd::Root, Waiting::Other).is_some());
        let named = [libc(""), libc("pthread_mutex_timedlock"), own()];
        assert!(reason(&named, StackEnd::Root, Waiting::Condition).is_some());
    }

    #[test]
    fn what_is_not_proven_is_not_safe() {
        assert!(reason(&[own()], StackEnd::Broken, Waiting::Other).is_some());
        assert!(reason(&[libc("qsort"), own()], StackEnd::Root, Waiting::Other).is_some());
        assert!(reason(&[libc(""), libc("")], StackEnd::Root, Waiting::Other).is_some());
        let loader = Frame {
            place: Place::Loader,
            names: Vec::new(),
        };
        let lazy = [loader, own()];
        assert!(reason(&lazy, StackEnd::Root, Waiting::Other).is_some());
    }
}
