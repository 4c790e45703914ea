//! The HTTP status of each error of the host.

use fdguard_http::Problem;
use fdguard_process::tree::StartError;
use http::StatusCode;
use rustix::io::Errno;

use crate::Error;
use crate::call::CallFailure;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::new(status_of(&error), error.code(), error.to_string())
    }
}

/// The status of an error: 4xx if the caller can change it, 5xx if only the machine can.
fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::Unknown { .. } => StatusCode::NOT_FOUND,
        Error::Busy { .. } => StatusCode::CONFLICT,
        Error::Full { .. } => StatusCode::TOO_MANY_REQUESTS,
        Error::Ended { .. } => StatusCode::GONE,
        Error::Closing | Error::NoRoom { .. } => StatusCode::SERVICE_UNAVAILABLE,
        Error::Start(error) if is_machines(error) => StatusCode::SERVICE_UNAVAILABLE,
        Error::Start(_) | Error::NotReady { .. } | Error::Bad(_) | Error::Files(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Error::Call(failure) => status_of_call(failure),
        Error::Io { .. } | Error::Registry(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Whether the machine lacks something that a start needs. Anything else (for example a directory
/// name that is too long) is the caller's fault.
fn is_machines(error: &StartError) -> bool {
    let StartError::Refused { source, .. } = error else {
        return false;
    };
    let lacking = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::AGAIN,
        Errno::NOSPC,
        Errno::PIPE,
    ];
    let errno = Errno::from_io_error(source);
    errno.is_some_and(|errno| lacking.contains(&errno))
}

/// The status of a failed call: the peer's fault, unless the request was wrong.
fn status_of_call(failure: &CallFailure) -> StatusCode {
    match failure {
        CallFailure::Bad(_) => StatusCode::UNPROCESSABLE_ENTITY,
        CallFailure::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        CallFailure::Aborted { .. } => StatusCode::CONFLICT,
        CallFailure::Full(_) => StatusCode::TOO_MANY_REQUESTS,
        CallFailure::Closing => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests {
    use fdguard_http::Problem;
    use http::StatusCode;

    use crate::Error;

    #[test]
    fn the_codes_of_the_host_have_their_statuses() {
        let busy = Error::Busy {
            id: "a".to_owned(),
            for_ms: 5,
        };
        let ended = Error::Ended {
            id: "a".to_owned(),
            why: "it said\r\n\nno".to_owned(),
        };
        let full = Error::Full {
            what: "sessions",
            count: 32,
        };
        for (error, status, code) in [
            (busy, 409, "busy"),
            (full, 429, "full"),
            (Error::Closing, 503, "closing"),
            (Error::Bad("x".to_owned()), 422, "bad-request"),
        ] {
            let problem = Problem::from(error);
            assert_eq!((problem.status().as_u16(), problem.code()), (status, code));
        }
        let problem = Problem::from(ended);
        assert_eq!(problem.detail(), "session a has ended: it said; no");
        assert_eq!(problem.status(), StatusCode::GONE);
    }
}
