//! The class of a descriptor by the call that opened it.

use crate::Class;
use crate::event::OpenCall;

impl Class {
    /// The class that a call alone determines; absent where the call may open different kinds.
    #[must_use]
    pub fn from_call(call: OpenCall) -> Option<Self> {
        Some(match call {
            OpenCall::Pipe | OpenCall::Popen => Self::Pipe,
            OpenCall::Eventfd => Self::Eventfd,
            OpenCall::Epoll => Self::Eventpoll,
            OpenCall::Timerfd => Self::Timerfd,
            OpenCall::Signalfd => Self::Signalfd,
            OpenCall::Inotify => Self::Inotify,
            OpenCall::Fanotify => Self::Fanotify,
            OpenCall::Memfd => Self::Memfd,
            OpenCall::Pidfd => Self::Pidfd,
            OpenCall::Opendir => Self::Directory,
            OpenCall::Openpt => Self::PtyMaster,
            OpenCall::Mkstemp => Self::Regular,
            OpenCall::Tmpfile => Self::Deleted,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Class;
    use crate::event::OpenCall;

    #[test]
    fn a_call_determines_only_what_leaves_no_choice() {
        assert_eq!(Class::from_call(OpenCall::Timerfd), Some(Class::Timerfd));
        assert_eq!(Class::from_call(OpenCall::Open), None);
        assert_eq!(Class::from_call(OpenCall::Socket), None);
    }
}
