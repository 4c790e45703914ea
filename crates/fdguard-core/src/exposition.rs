//! The Prometheus text format, version 0.0.4: one family after the other, each with HELP and TYPE
//! once.

use std::fmt::Write as _;

/// The `Content-Type` that Prometheus expects.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

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
pub struct Exposition(String);

impl Exposition {
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
        let kind = match kind {
            MetricType::Gauge => "gauge",
            MetricType::Counter => "counter",
        };
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        for sample in samples {
            self.sample(name, &sample);
        }
    }

    fn sample(&mut self, name: &str, sample: &MetricSample<'_>) {
        self.0.push_str(name);
        for (at, (label, value)) in sample.labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            escape(&mut self.0, value);
            self.0.push('"');
        }
        if !sample.labels.is_empty() {
            self.0.push('}');
        }
        self.line(format_args!(" {}", sample.value));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _written = self.0.write_fmt(text);
        self.0.push('\n');
    }

    /// The whole page.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
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
