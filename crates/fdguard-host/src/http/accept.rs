//! Content negotiation: selects the media type that a caller accepts.

use http::{HeaderMap, StatusCode, header};

use fdguard_http::Problem;

/// Documents.
pub(super) const JSON: &str = "application/json";
/// A stream of events.
pub(super) const EVENTS: &str = "text/event-stream";

/// The media type to return: the one with the highest weight, the first of equals. Without an
/// Accept header every type is accepted.
pub(super) fn negotiate(
    headers: &HeaderMap,
    offers: &[&'static str],
) -> Result<&'static str, Problem> {
    let asked: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let first = offers.first().copied().unwrap_or(JSON);
    if asked.iter().all(|range| range.trim().is_empty()) {
        return Ok(first);
    }
    let mut best: Option<(&'static str, f32)> = None;
    for offer in offers {
        let weight = weight(offer, &asked);
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((offer, weight));
        }
    }
    best.map(|(offer, _)| offer).ok_or_else(|| {
        let detail = format!(
            "not acceptable: this endpoint returns {}",
            offers.join(" or ")
        );
        Problem::new(StatusCode::NOT_ACCEPTABLE, "not-acceptable", detail)
    })
}

/// The weight of a media type: that of the most exact range which names it.
fn weight(offer: &str, asked: &[&str]) -> f32 {
    let kind = offer.split('/').next().unwrap_or_default();
    let mut found = (0, 0.0);
    for range in asked {
        let mut words = range.split(';').map(str::trim);
        let name = words.next().unwrap_or_default();
        let exactness = match name.split_once('/') {
            _ if name.eq_ignore_ascii_case(offer) => 3,
            Some((family, "*")) if family.eq_ignore_ascii_case(kind) => 2,
            Some(("*", "*")) => 1,
            _ => continue,
        };
        let given = words.find_map(|word| word.strip_prefix("q=").or(word.strip_prefix("Q=")));
        let given = given.map_or(1.0, |text| text.parse().unwrap_or(0.0));
        if exactness > found.0 {
            found = (exactness, given);
        }
    }
    found.1
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{EVENTS, JSON, negotiate};

    #[test]
    fn the_form_is_the_one_that_is_asked_for() {
        for (accept, form) in [
            ("", Some(JSON)),
            ("*/*", Some(JSON)),
            ("text/event-stream", Some(EVENTS)),
            ("application/json;q=0.5, text/event-stream", Some(EVENTS)),
            ("text/*", Some(EVENTS)),
            ("text/event-stream;q=0, */*", Some(JSON)),
            ("*/*, application/json;q=0", Some(EVENTS)),
            ("text/html", None),
            ("application/json;q=0", None),
            ("nonsense", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(negotiate(&headers, &[JSON, EVENTS]).ok(), form, "{accept}");
        }
    }
}
