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

    /// The value.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// Adds a label.
    pub(crate) fn label(&mut self, name: &'static str, value: &'a str) {
        self.labels.push((name, value));
    }
}

/// A series with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricSeries {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) is_counter: bool,
    pub(crate) labels: Vec<(&'static str, String)>,
    /// Absent: the series has ended.
    pub(crate) value: Option<f64>,
}

impl MetricSeries {
    /// What makes it this series.
    pub(crate) fn identity(&self) -> (&'static str, &[(&'static str, String)]) {
        (self.name, &self.labels)
    }

    /// The value of a label; empty if it has none.
    pub(crate) fn label(&self, wanted: &str) -> &str {
        let mut labels = self.labels.iter();
        let found = labels.find(|(name, _)| *name == wanted);
        found.map_or("", |(_, value)| value)
    }
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
        name: &'static str,
        kind: MetricType,
        help: &'static str,
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
                name,
                help,
                is_counter: matches!(kind, MetricType::Counter),
                labels: own(&one.labels),
                value: Some(one.value),
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
