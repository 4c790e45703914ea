//! The Prometheus text format, version 0.0.4, and OpenMetrics 1.0: one family after the other, each
//! with HELP and TYPE once.

use std::fmt::Write as _;

/// The `Content-Type` that Prometheus expects.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The `Content-Type` of OpenMetrics.
pub const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The type of a family.
#[derive(Clone, Copy, Debug)]
pub enum MetricType {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
}

/// One sample: its labels and its value.
#[derive(Debug)]
pub struct MetricSample<'a> {
    labels: Vec<(&'static str, &'a str)>,
    value: f64,
}

impl<'a> MetricSample<'a> {
    /// With these labels.
    #[must_use]
    pub fn new(labels: &[(&'static str, &'a str)], value: f64) -> Self {
        Self {
            labels: labels.to_vec(),
            value,
        }
    }

    /// With one more label.
    pub fn label(&mut self, name: &'static str, value: &'a str) {
        self.labels.push((name, value));
    }
}

/// The text under construction.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    is_open_metrics: bool,
}

impl Exposition {
    /// A text in the form of OpenMetrics: the family of a counter has no `_total`, and the end is
    /// marked.
    #[must_use]
    pub fn open_metrics() -> Self {
        Self {
            is_open_metrics: true,
            ..Self::default()
        }
    }

    /// A family with its samples; writes nothing when there are none.
    #[expect(single_use_lifetimes, reason = "an anonymous one is not allowed here")]
    pub fn family<'a>(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        samples: impl IntoIterator<Item = MetricSample<'a>>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let (kind, family) = match kind {
            MetricType::Gauge => ("gauge", name),
            MetricType::Counter if self.is_open_metrics => {
                ("counter", name.strip_suffix("_total").unwrap_or(name))
            }
            MetricType::Counter => ("counter", name),
        };
        self.line(format_args!("# HELP {family} {help}"));
        self.line(format_args!("# TYPE {family} {kind}"));
        for sample in samples {
            self.sample(name, &sample);
        }
    }

    fn sample(&mut self, name: &str, sample: &MetricSample<'_>) {
        self.text.push_str(name);
        for (at, (label, value)) in sample.labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, value);
            self.text.push('"');
        }
        if !sample.labels.is_empty() {
            self.text.push('}');
        }
        self.line(format_args!(" {}", sample.value));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _written = self.text.write_fmt(text);
        self.text.push('\n');
    }

    /// The whole page.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.is_open_metrics {
            self.line(format_args!("# EOF"));
        }
        self.text
    }
}

fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exposition, MetricSample, MetricType};

    fn page(mut text: Exposition) -> String {
        let sample = |value| MetricSample::new(&[("name", "a\"b")], value);
        text.family("x_total", MetricType::Counter, "Things.", [sample(1.0)]);
        text.family("y", MetricType::Gauge, "Level.", [sample(0.5)]);
        text.family("z", MetricType::Gauge, "None.", []);
        text.finish()
    }

    #[test]
    fn the_two_forms_differ_in_counters_and_in_the_end() {
        assert_eq!(
            page(Exposition::default()),
            "# HELP x_total Things.\n# TYPE x_total counter\nx_total{name=\"a\\\"b\"} 1\n\
             # HELP y Level.\n# TYPE y gauge\ny{name=\"a\\\"b\"} 0.5\n"
        );
        assert_eq!(
            page(Exposition::open_metrics()),
            "# HELP x Things.\n# TYPE x counter\nx_total{name=\"a\\\"b\"} 1\n\
             # HELP y Level.\n# TYPE y gauge\ny{name=\"a\\\"b\"} 0.5\n# EOF\n"
        );
    }
}
