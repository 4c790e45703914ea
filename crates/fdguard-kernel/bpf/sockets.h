// What the kernel knows of a socket, as its tables would show it.
#pragma once
#include "files.h"

enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10, AF_NETLINK = 16 };
enum { TCP = 6, UDP = 17, LISTENING = 10 };
// Space for the name of a Unix socket.
enum { NAME = 128 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
    struct ns_common ns;
};

typedef struct {
    struct net *net;
} possible_net_t;

struct in6_addr {
    u8 bytes[16];
};

struct sock_common {
    u32 skc_daddr;
    u32 skc_rcv_saddr;
    u16 skc_dport;
    u16 skc_family;
    volatile u8 skc_state;
    possible_net_t skc_net;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
};

typedef struct {
    u32 val;
} kuid_t;

typedef struct {
    atomic_t refs;
} refcount_t;

struct sock {
    struct sock_common __sk_common;
    struct {
        atomic_t rmem_alloc;
    } sk_backlog;
    refcount_t sk_wmem_alloc;
    kuid_t sk_uid;
    u16 sk_protocol;
    u16 sk_type;
    u8 sk_shutdown;
    u32 sk_ack_backlog;
    u32 sk_max_ack_backlog;
    struct socket *sk_socket;
    unsigned long sk_ino;
};

struct socket {
    struct sock *sk;
};

struct socket_alloc {
    struct socket socket;
    struct inode vfs_inode;
};

struct inet_sock {
    u16 inet_sport;
};

struct tcp_sock {
    u32 rcv_nxt, copied_seq, write_seq, snd_una;
};

struct udp_sock {
    int forward_deficit;
};

struct sockaddr_un {
    char sun_path[108];
};

struct unix_address {
    int len;
    struct sockaddr_un name[1];
};

struct unix_sock {
    struct unix_address *addr;
    struct sock *peer;
};

struct netlink_sock {
    u32 portid;
    unsigned long *groups;
};

#pragma clang attribute pop

// An IP socket: ports and addresses as they are on the wire.
struct inet_tail {
    u32 uid, rx, tx;
    u16 family, protocol, type, sport, dport;
    u8 state, unused[5];
    u8 local[16], remote[16];
};

struct unix_tail {
    u64 peer;
    u16 type, name_length, peer_name_length;
    u8 state, shutdown, has_peer, unused[7];
    char name[NAME], peer_name[NAME];
};

struct netlink_tail {
    u32 protocol, port, groups, unused;
};

static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *sk) = (void *)137;
static struct unix_sock *(*const bpf_skc_to_unix_sock)(void *sk) = (void *)178;

// How many bytes of the tail are used; 0 if the tables of the socket's namespace must be read.
INLINE u32 describe_inet(struct inet_tail *tail, struct sock *sk)
{
    u16 protocol = sk->sk_protocol, family = sk->__sk_common.skc_family;
    u8 state = sk->__sk_common.skc_state;
    u16 port = 0;
    COPY(port, ((struct inet_sock *)sk)->inet_sport);
    tail->uid = sk->sk_uid.val;
    tail->family = family;
    tail->protocol = protocol;
    tail->type = sk->sk_type;
    tail->state = state;
    tail->sport = port;
    tail->dport = sk->__sk_common.skc_dport;
    if (family == AF_INET) {
        *(u32 *)tail->local = sk->__sk_common.skc_rcv_saddr;
        *(u32 *)tail->remote = sk->__sk_common.skc_daddr;
    } else if (FIELD_EXISTS(sk->__sk_common.skc_v6_daddr)) {
        COPY(tail->local, sk->__sk_common.skc_v6_rcv_saddr);
        COPY(tail->remote, sk->__sk_common.skc_v6_daddr);
    }
    if (protocol == TCP && state == LISTENING) {
        tail->rx = sk->sk_ack_backlog;
        tail->tx = sk->sk_max_ack_backlog;
    } else if (protocol == TCP) {
        struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
        if (!tcp)
            return 0;
        s32 unread = tcp->rcv_nxt - tcp->copied_seq;
        tail->rx = unread < 0 ? 0 : unread;
        tail->tx = tcp->write_seq - tcp->snd_una;
    } else if (protocol == UDP) {
        int deficit = 0;
        COPY(deficit, ((struct udp_sock *)sk)->forward_deficit);
        tail->rx = sk->sk_backlog.rmem_alloc.counter - deficit;
        tail->tx = sk->sk_wmem_alloc.refs.counter - 1;
    } else {
        return 0;
    }
    return sizeof(*tail);
}

INLINE u16 copy_name(char *to, struct unix_address *address)
{
    if (!address)
        return 0;
    // The family comes first.
    int length = address->len - 2;
    if (length <= 0 || length >= NAME)
        return 0;
    bpf_probe_read_kernel(to, length & (NAME - 1), &address->name[0].sun_path);
    return length;
}

INLINE u64 inode_of(struct sock *sk)
{
    u64 ino = 0;
    if (FIELD_EXISTS(sk->sk_ino))
        return sk->sk_ino;
    struct socket *socket = sk->sk_socket;
    if (!socket)
        return 0;
    struct socket_alloc *both = (void *)socket;
    COPY(ino, both->vfs_inode.i_ino);
    return ino;
}

// The other end is held only as long as this socket refers to it: if that changed, `is_sure` is
// false.
INLINE u32 describe_unix(struct unix_tail *tail, struct sock *sk, bool *is_sure)
{
    struct unix_sock *unix_socket = bpf_skc_to_unix_sock(sk);
    struct sock *peer_after = NULL;
    if (!unix_socket)
        return 0;
    tail->type = sk->sk_type;
    tail->state = sk->__sk_common.skc_state;
    tail->shutdown = sk->sk_shutdown;
    tail->name_length = copy_name(tail->name, unix_socket->addr);
    tail->peer = 0;
    tail->has_peer = 0;
    tail->peer_name_length = 0;
    struct sock *peer = unix_socket->peer;
    if (peer) {
        struct unix_address *address = NULL;
        COPY(address, ((struct unix_sock *)peer)->addr);
        tail->has_peer = 1;
        tail->peer = inode_of(peer);
        if (address) {
            int length = 0;
            COPY(length, address->len);
            length -= 2;
            if (length > 0 && length < NAME) {
                bpf_probe_read_kernel(tail->peer_name, length & (NAME - 1),
                                      &address->name[0].sun_path);
                tail->peer_name_length = length;
            }
        }
    }
    COPY(peer_after, unix_socket->peer);
    *is_sure = peer == peer_after;
    if (tail->peer_name_length)
        return sizeof(*tail);
    return sizeof(*tail) - (tail->name_length ? NAME : 2 * NAME);
}

INLINE u32 describe_netlink(struct netlink_tail *tail, struct sock *sk, bool *is_sure)
{
    struct netlink_sock *netlink = (void *)sk;
    unsigned long *groups = NULL, *groups_after = NULL, word = 0;
    u32 port = 0;
    COPY(port, netlink->portid);
    COPY(groups, netlink->groups);
    if (groups)
        bpf_probe_read_kernel(&word, sizeof(word), groups);
    COPY(groups_after, netlink->groups);
    *is_sure = groups == groups_after;
    tail->protocol = sk->sk_protocol;
    tail->port = port;
    tail->groups = word;
    return sizeof(*tail);
}
