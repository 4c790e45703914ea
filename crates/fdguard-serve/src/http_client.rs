//! Sends one request and reads its answer: over HTTP or HTTPS, within a bounded time and size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fdguard_core::units::exact_seconds;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The address of a server: a receiver of messages, or a source of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverUrl {
    host: String,
    port: u16,
    path: String,
    is_tls: bool,
}

impl ReceiverUrl {
    /// `http://HOST[:PORT][/PATH]` or `https://…`. User names in it are refused: they would end up
    /// in logs.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not an address: use http://HOST:PORT/PATH or https://…");
        let uri: Uri = text.parse().ok().ok_or_else(wrong)?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err("an address must not contain a user name or a password".to_owned());
        }
        let host = uri
            .host()
            .filter(|host| !host.is_empty())
            .ok_or_else(wrong)?;
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            path: path.to_owned(),
            is_tls,
        })
    }

    /// The same receiver at a path below its own.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        Self {
            path: format!("{}{path}", self.path.trim_end_matches('/')),
            ..self.clone()
        }
    }

    /// The same receiver; at this path if it was named without one.
    pub(crate) fn or_at(&self, path: &str) -> Self {
        match self.path.as_str() {
            "/" => self.below(path),
            _ => self.clone(),
        }
    }

    /// For logs.
    #[must_use]
    pub fn label(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct HttpCall<'a> {
    pub(crate) method: Method,
    pub(crate) headers: &'a [(HeaderName, HeaderValue)],
    pub(crate) body: Vec<u8>,
    /// From the name of the server to the end of its answer.
    pub(crate) within: Duration,
    /// The largest body of an answer.
    pub(crate) most: usize,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// A client of one address. Each request has a connection of its own.
#[derive(Clone)]
pub(crate) struct HttpClient {
    url: ReceiverUrl,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HttpClient").field(&self.url).finish()
    }
}

impl HttpClient {
    /// Loads the certificates of the system if the server speaks TLS.
    pub(crate) fn new(url: ReceiverUrl) -> Result<Self, String> {
        let tls = if url.is_tls { Some(connector()?) } else { None };
        Ok(Self { url, tls })
    }

    /// One request and its answer.
    pub(crate) async fn call(&self, call: HttpCall<'_>) -> Result<HttpAnswer, String> {
        let within = call.within;
        let answered = tokio::time::timeout(within, self.connect(call)).await;
        answered.unwrap_or_else(|_late| Err(format!("no answer within {}", exact_seconds(within))))
    }

    async fn connect(&self, call: HttpCall<'_>) -> Result<HttpAnswer, String> {
        let address = (self.url.host.as_str(), self.url.port);
        let stream = TcpStream::connect(address).await.map_err(words)?;
        match &self.tls {
            None => self.send(stream, call).await,
            Some(tls) => {
                let name = ServerName::try_from(self.url.host.clone()).map_err(words)?;
                let stream = tls.connect(name, stream).await.map_err(words)?;
                self.send(stream, call).await
            }
        }
    }

    async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        call: HttpCall<'_>,
    ) -> Result<HttpAnswer, String> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(words)?;
        let mut request = Request::new(Full::new(Bytes::from(call.body)));
        *request.method_mut() = call.method;
        *request.uri_mut() = self.url.path.parse().map_err(words)?;
        let host = format!("{}:{}", self.url.host, self.url.port);
        let fixed = [
            (header::HOST, host.parse().map_err(words)?),
            (header::USER_AGENT, HeaderValue::from_static("fdguard")),
            (header::CONNECTION, HeaderValue::from_static("close")),
        ];
        let headers = fixed.into_iter().chain(call.headers.iter().cloned());
        request.headers_mut().extend(headers);
        let exchange = async {
            let response = sender.send_request(request).await.map_err(words)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), call.most)
                .collect()
                .await;
            let body = body.map_err(words)?.to_bytes();
            Ok(HttpAnswer { status, body })
        };
        let mut exchange = std::pin::pin!(exchange);
        // A server may close the connection with its answer: then the answer is there already.
        tokio::select! {
            biased;
            answered = &mut exchange => answered,
            _ended = connection => exchange.await,
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn connector() -> Result<TlsConnector, String> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err("no certificates of authorities were found on this system".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(words)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::ReceiverUrl;

    #[test]
    fn addresses_are_read_or_refused() {
        let url = ReceiverUrl::parse("http://127.0.0.1:9093").unwrap();
        assert_eq!(url.below("/api/v2/alerts").path, "/api/v2/alerts");
        assert_eq!(url.label(), "http://127.0.0.1:9093");
        let below = ReceiverUrl::parse("https://am.example/alert/").unwrap();
        assert_eq!((below.port, below.is_tls), (443, true));
        assert_eq!(below.below("/api/v2/alerts").path, "/alert/api/v2/alerts");
        assert_eq!(
            ReceiverUrl::parse("http://[::1]:80/x?y=1").unwrap().host,
            "::1"
        );
        let at = |text: &str| ReceiverUrl::parse(text).unwrap().or_at("/v1/metrics").path;
        assert_eq!(at("http://collector:4318"), "/v1/metrics");
        assert_eq!(at("http://collector:4318/"), "/v1/metrics");
        assert_eq!(at("http://collector:4318/otlp"), "/otlp");
        assert_eq!(at("http://collector:4318/?x=1"), "/?x=1");
        for wrong in [
            "",
            "am.example",
            "ftp://x",
            "http://",
            "http://u:p@x/",
            "http://x y",
        ] {
            assert!(ReceiverUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
