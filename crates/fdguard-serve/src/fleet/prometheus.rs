//! The part of the Prometheus HTTP API that is used: instant queries.

use std::collections::BTreeMap;
use std::time::Duration;

use fdguard_core::Gap;
use http::{HeaderName, HeaderValue, Method, header};
use serde::Deserialize;

use super::{FleetError, FleetOptions};
use crate::http_client::{HttpCall, HttpClient};

/// The largest answer that is read.
const MOST: usize = 64 << 20;
/// The longest part of a foreign text in an error.
const LONGEST: usize = 200;

/// One value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PromSample {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PromAnswer {
    pub(super) samples: Vec<PromSample>,
    /// What the server says is missing from it.
    warnings: Vec<String>,
}

impl PromAnswer {
    /// An answer that is not complete.
    pub(super) fn gap(&self) -> Option<Gap> {
        let why = self.warnings.first()?;
        let remedy = "check the server and its storage nodes";
        Some(Gap::new("part of the metrics", why.as_str(), remedy))
    }
}

/// A server with this API.
#[derive(Debug)]
pub(super) struct PrometheusApi {
    client: HttpClient,
    headers: Vec<(HeaderName, HeaderValue)>,
    within: Duration,
    label: String,
}

impl PrometheusApi {
    pub(super) fn new(options: FleetOptions) -> Result<Self, FleetError> {
        let label = options.from.label();
        let unreachable = |why: String| FleetError::Unreachable {
            url: label.clone(),
            why,
        };
        let client = HttpClient::new(options.from.below("/api/v1/query")).map_err(unreachable)?;
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut headers = options.headers.to_vec();
        headers.push((header::CONTENT_TYPE, form));
        if let Some(token) = options.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let bearer = bearer.map_err(|error| unreachable(error.to_string()))?;
            headers.push((header::AUTHORIZATION, bearer));
        }
        Ok(Self {
            client,
            headers,
            within: options.within,
            label,
        })
    }

    /// For messages.
    pub(super) fn label(&self) -> String {
        self.label.clone()
    }

    /// An instant query, now.
    pub(super) fn query(&self, expression: &str) -> Result<PromAnswer, FleetError> {
        let url = || self.label.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| FleetError::Unreachable {
            url: url(),
            why: error.to_string(),
        })?;
        let call = HttpCall {
            method: Method::POST,
            headers: &self.headers,
            body: format!("query={}", encode(expression)).into_bytes(),
            within: self.within,
            most: MOST,
        };
        let answer = runtime
            .block_on(self.client.call(call))
            .map_err(|why| FleetError::Unreachable { url: url(), why })?;
        match parse(&answer.body) {
            Ok(parsed) => parsed.map_err(|why| FleetError::Refused { url: url(), why }),
            Err(_) if !answer.status.is_success() => {
                let why = format!("status {}", answer.status);
                Err(FleetError::Refused { url: url(), why })
            }
            Err(why) => Err(FleetError::Nonsense { url: url(), why }),
        }
    }
}

/// For the body of a form.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[derive(Deserialize)]
struct Body {
    status: String,
    data: Option<BodyData>,
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
    /// VictoriaMetrics in a cluster.
    #[serde(default, rename = "isPartial")]
    is_partial: bool,
}

#[derive(Deserialize)]
struct BodyData {
    #[serde(rename = "resultType")]
    kind: String,
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct BodySample {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

/// The answer, or the server's refusal; an error if it is neither.
fn parse(body: &[u8]) -> Result<Result<PromAnswer, String>, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| short(&error.to_string()))?;
    if body.status != "success" {
        let why = body.error.unwrap_or_else(|| "no reason given".to_owned());
        return Ok(Err(short(&why)));
    }
    let data = body.data.ok_or("the answer has no data")?;
    if data.kind != "vector" {
        return Err(format!("a {} instead of a vector", short(&data.kind)));
    }
    let result: Vec<BodySample> =
        serde_json::from_value(data.result).map_err(|error| short(&error.to_string()))?;
    let mut samples = Vec::with_capacity(result.len());
    for one in result {
        let value: f64 = one
            .value
            .1
            .parse()
            .map_err(|_error| format!("the value {:?} is not a number", short(&one.value.1)))?;
        samples.push(PromSample {
            labels: one.metric,
            value,
        });
    }
    let mut warnings: Vec<String> = body.warnings.iter().map(|text| short(text)).collect();
    if body.is_partial {
        warnings.push("the server says that its answer is partial".to_owned());
    }
    Ok(Ok(PromAnswer { samples, warnings }))
}

/// Foreign text for one line of a message.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{encode, parse};

    #[test]
    fn answers_refusals_and_nonsense_are_told_apart() {
        let good = br#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"instance":"a:1","service":"web"},"value":[1700000000.1,"0.5"]},
            {"metric":{},"value":[1700000000,"+Inf"]}]},"warnings":["one store is down"]}"#;
        let answer = parse(good).unwrap().unwrap();
        assert_eq!(answer.samples[0].labels["instance"], "a:1");
        assert_eq!(answer.samples[0].value, 0.5);
        assert!(answer.samples[1].value.is_infinite());
        assert_eq!(answer.gap().unwrap().why, "one store is down");
        let partial = br#"{"status":"success","isPartial":true,
            "data":{"resultType":"vector","result":[]}}"#;
        assert!(parse(partial).unwrap().unwrap().gap().is_some());
        let refused = br#"{"status":"error","errorType":"timeout","error":"query timed out\nx"}"#;
        assert_eq!(parse(refused).unwrap(), Err("query timed out".to_owned()));
        for nonsense in [
            &b"<html>"[..],
            b"",
            b"[]",
            b"{\"status\":\"success\"}",
            br#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
            br#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}"#,
        ] {
            assert!(parse(nonsense).is_err(), "{}", String::from_utf8_lossy(nonsense));
        }
    }

    #[test]
    fn expressions_survive_the_form() {
        assert_eq!(encode("a{b=\"c d\"}+1"), "a%7Bb%3D%22c%20d%22%7D%2B1");
        assert_eq!(encode("é"), "%C3%A9");
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(parse(&bytes));
        }
    }
}
