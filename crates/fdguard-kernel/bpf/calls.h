// System calls of x86-64 that concern descriptors, and what the programs do about each.
#pragma once

#include "kernel.h"

enum call {
    CALL_open = 2, CALL_close = 3, CALL_mmap = 9, CALL_ioctl = 16, CALL_pipe = 22, CALL_dup = 32, CALL_dup2 = 33,
    CALL_socket = 41, CALL_accept = 43, CALL_recvmsg = 47, CALL_socketpair = 53,
    CALL_getsockopt = 55, CALL_clone = 56, CALL_fork = 57, CALL_vfork = 58, CALL_wait4 = 61,
    CALL_fcntl = 72, CALL_creat = 85,
    CALL_epoll_create = 213, CALL_mq_open = 240, CALL_waitid = 247, CALL_inotify_init = 253,
    CALL_openat = 257,
    CALL_unshare = 272, CALL_signalfd = 282, CALL_timerfd_create = 283, CALL_eventfd = 284,
    CALL_accept4 = 288, CALL_signalfd4 = 289, CALL_eventfd2 = 290, CALL_epoll_create1 = 291,
    CALL_dup3 = 292, CALL_pipe2 = 293, CALL_inotify_init1 = 294, CALL_perf_event_open = 298,
    CALL_recvmmsg = 299, CALL_fanotify_init = 300, CALL_open_by_handle_at = 304,
    CALL_seccomp = 317, CALL_memfd_create = 319, CALL_bpf = 321, CALL_userfaultfd = 323,
    CALL_io_uring_setup = 425, CALL_io_uring_enter = 426, CALL_open_tree = 428, CALL_fsopen = 430,
    CALL_fsmount = 432, CALL_fspick = 433, CALL_pidfd_open = 434, CALL_clone3 = 435,
    CALL_close_range = 436, CALL_openat2 = 437, CALL_pidfd_getfd = 438,
    CALL_landlock_create_ruleset = 444, CALL_memfd_secret = 447, CALL_open_tree_attr = 467,
    CALLS = 512,
};

enum class {
    // The result is a new descriptor.
    OPENS = 1,
    // The first argument is a descriptor: EBADF is a bad use of it.
    USES = 2,
    // There is something to do before the call.
    BEFORE = 4,
    // There is something else to do after the call.
    AFTER = 8,
    // It is one of those that may open and close anything: the table is compared.
    COMPARED = 16,
    // It may map code.
    MAPS = 32,
    // It may start a child, or wait for one.
    CHILDREN = 64,
};

static const volatile u8 classes[CALLS] = {
    [CALL_open] = OPENS, [CALL_creat] = OPENS, [CALL_openat] = OPENS, [CALL_openat2] = OPENS,
    [CALL_open_by_handle_at] = OPENS, [CALL_open_tree] = OPENS, [CALL_open_tree_attr] = OPENS,
    [CALL_fsopen] = OPENS, [CALL_fsmount] = OPENS | USES, [CALL_fspick] = OPENS,
    [CALL_mq_open] = OPENS, [CALL_socket] = OPENS, [CALL_accept] = OPENS | USES,
    [CALL_accept4] = OPENS | USES, [CALL_epoll_create] = OPENS, [CALL_epoll_create1] = OPENS,
    [CALL_inotify_init] = OPENS, [CALL_inotify_init1] = OPENS, [CALL_fanotify_init] = OPENS,
    [CALL_timerfd_create] = OPENS, [CALL_eventfd] = OPENS, [CALL_eventfd2] = OPENS,
    [CALL_signalfd] = AFTER, [CALL_signalfd4] = AFTER, [CALL_perf_event_open] = OPENS,
    [CALL_memfd_create] = OPENS, [CALL_memfd_secret] = OPENS, [CALL_userfaultfd] = OPENS,
    [CALL_io_uring_setup] = OPENS, [CALL_pidfd_open] = OPENS,
    [CALL_pidfd_getfd] = OPENS | USES, [CALL_landlock_create_ruleset] = AFTER,
    [CALL_seccomp] = AFTER, [CALL_bpf] = COMPARED,
    [CALL_dup] = OPENS | USES, [CALL_dup2] = OPENS | USES | BEFORE | AFTER,
    [CALL_dup3] = OPENS | USES | BEFORE | AFTER, [CALL_fcntl] = USES | AFTER,
    [CALL_pipe] = AFTER, [CALL_pipe2] = AFTER, [CALL_socketpair] = AFTER,
    [CALL_recvmsg] = USES | AFTER, [CALL_recvmmsg] = USES | AFTER,
    [CALL_getsockopt] = USES | AFTER, [CALL_clone] = AFTER | CHILDREN,
    [CALL_clone3] = AFTER | CHILDREN, [CALL_fork] = CHILDREN, [CALL_vfork] = CHILDREN,
    [CALL_wait4] = CHILDREN, [CALL_waitid] = CHILDREN,
    [CALL_mmap] = MAPS, [CALL_unshare] = BEFORE | AFTER, [CALL_close] = BEFORE | AFTER,
    [CALL_close_range] = BEFORE | AFTER,
    [CALL_ioctl] = USES | COMPARED, [CALL_io_uring_enter] = USES | COMPARED,
    // Calls that only use a descriptor.
    [0] = USES, [1] = USES, [5] = USES, [8] = USES, [17 ... 20] = USES, [42] = USES,
    [44 ... 46] = USES, [48 ... 52] = USES, [54] = USES, [73 ... 75] = USES, [77] = USES,
    [78] = USES, [81] = USES, [91] = USES, [93] = USES, [138] = USES, [187] = USES, [190] = USES,
    [193] = USES, [196] = USES, [199] = USES, [217] = USES, [221] = USES, [232] = USES,
    [233] = USES, [242 ... 245] = USES, [254] = USES, [255] = USES, [275 ... 278] = USES,
    [281] = USES, [285 ... 287] = USES, [295] = USES, [296] = USES, [301] = USES, [306 ... 308] = USES,
    [326 ... 328] = USES, [424] = USES, [427] = USES, [431] = USES, [441] = USES, [443] = USES,
    [445] = USES,
};
