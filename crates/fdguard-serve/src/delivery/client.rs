//! Delivers one message, and says whether another attempt makes sense.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::extra_headers::ExtraHeaders;
use crate::http_client::{HttpCall, HttpClient, ReceiverUrl};

/// From the name of the receiver to its answer.
const WITHIN: Duration = Duration::from_secs(10);
/// The largest answer; it is not used.
const MOST: usize = 64 << 10;

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undelivered {
    /// It may work later.
    Later(String),
    /// The receiver does not want this message.
    Refused(StatusCode),
}

/// A client of one receiver.
#[derive(Clone, Debug)]
pub(crate) struct PostClient {
    client: HttpClient,
    /// The content type, and what else this receiver needs.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl PostClient {
    /// Loads the certificates of the system if the receiver speaks TLS.
    pub(crate) fn new(
        url: ReceiverUrl,
        headers: &[(HeaderName, &'static str)],
        extra: &ExtraHeaders,
    ) -> Result<Self, String> {
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        Ok(Self {
            client: HttpClient::new(url)?,
            headers: headers.chain(extra.to_vec()).collect(),
        })
    }

    /// Delivers a body.
    pub(crate) async fn post(
        &self,
        body: Vec<u8>,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<(), Undelivered> {
        let headers: Vec<_> = self.headers.iter().chain(headers).cloned().collect();
        let call = HttpCall {
            method: Method::POST,
            headers: &headers,
            body,
            within: WITHIN,
            most: MOST,
        };
        let answer = self.client.call(call).await.map_err(Undelivered::Later)?;
        let status = answer.status;
        if status.is_success() {
            return Ok(());
        }
        let is_ours = status.is_client_error()
            && status != StatusCode::TOO_MANY_REQUESTS
            && status != StatusCode::REQUEST_TIMEOUT
            && status != StatusCode::UNAUTHORIZED
            && status != StatusCode::NOT_FOUND;
        Err(match is_ours {
            true => Undelivered::Refused(status),
            false => Undelivered::Later(format!("status {status}")),
        })
    }
}
