//! Where metrics go: into the text of a page, or into a list of series that is pushed.

use fdguard_core::exposition::{self, Exposition, MetricType};

/// One value with its labels.
#[derive(Debug)]
pub(crate) struct MetricSample<'a> {
    labels: Vec<(&'static str, &'a str)>,
    value: f64,
}

impl<'a> MetricSample<'a> {
    /// With these labels.
    pub(crate) fn new(labels: &[(&'static str, &'a str)], value: f64) -> Self {
        Self {
            labels: labels.to_vec(),
            value,
        }
    }

    /// Adds a label.
    pub(crate) fn label(&mut self, name: &'static str, value: &'a str) {
        self.labels.push((name, value));
    }
}

/// A series with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricSeries {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) is_counter: bool,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

/// The destination.
#[derive(Debug)]
pub(crate) enum MetricSink {
    /// A page.
    Page(Exposition),
    /// A list.
    List(Vec<MetricSeries>),
}

impl MetricSink {
    /// A family with its samples.
    #[expect(single_use_lifetimes, reason = "an anonymous one is not allowed here")]
    pub(crate) fn family<'a>(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        samples: impl IntoIterator<Item = MetricSample<'a>>,
    ) {
        match self {
            Self::Page(page) => {
                let samples = samples.into_iter();
                let samples =
                    samples.map(|one| exposition::MetricSample::new(&one.labels, one.value));
                page.family(name, kind, help, samples);
            }
            Self::List(list) => list.extend(samples.into_iter().map(|one| MetricSeries {
                name: name.to_owned(),
                help: help.to_owned(),
                is_counter: matches!(kind, MetricType::Counter),
                labels: own(&one.labels),
                value: one.value,
            })),
        }
    }
}

fn own(labels: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect()
}
