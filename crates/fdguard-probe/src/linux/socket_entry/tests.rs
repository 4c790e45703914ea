use fdguard_core::{Class, TcpState};

use super::{SocketAnswer, by_answer, by_protocol};
use crate::parse::sockaddr::SocketName;

fn inet(text: &str) -> Option<SocketName> {
    Some(SocketName::Inet(text.parse().unwrap()))
}

#[test]
fn an_unlisted_tcp_socket_has_the_state_that_it_says() {
    let listener = SocketAnswer {
        tcp_state: Some(10),
        local: inet("127.0.0.1:80"),
        ..SocketAnswer::default()
    };
    let unlisted = by_protocol(12, Some("TCP"), true);
    let known = by_answer(&unlisted, &listener, None).unwrap();
    assert_eq!(known.class, Class::Tcp(TcpState::Listen));
    let connected = SocketAnswer {
        tcp_state: Some(1),
        remote: inet("127.0.0.2:81"),
        ..listener.clone()
    };
    let known = by_answer(&unlisted, &connected, None).unwrap();
    assert_eq!(known.class, Class::Tcp(TcpState::Established));
    assert_eq!(known.target.as_bytes(), b"127.0.0.1:80->127.0.0.2:81");
    let closed = SocketAnswer {
        tcp_state: Some(7),
        ..listener.clone()
    };
    let known = by_answer(&unlisted, &closed, None).unwrap();
    assert_eq!(known.class, Class::Tcp(TcpState::Close));
}

#[test]
fn an_unbound_socket_stays_unbound() {
    let answer = SocketAnswer {
        tcp_state: Some(7),
        local: inet("0.0.0.0:0"),
        ..SocketAnswer::default()
    };
    let tcp = by_protocol(12, Some("TCP"), true);
    assert_eq!(by_answer(&tcp, &answer, None), None);
    assert_eq!(tcp.class, Class::Tcp(TcpState::Unbound));
    let udp = by_protocol(12, Some("UDP"), true);
    assert_eq!(by_answer(&udp, &answer, None), None);
    assert_eq!(udp.target.as_bytes(), b"udp socket");
}
