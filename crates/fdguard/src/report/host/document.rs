//! The `fdguard.host/1` document. Serialised directly from the view, row by row: a tree of JSON
//! values for every process of a host would cost more than the look itself.

use fdguard_core::growth::Growth;
use fdguard_core::host::{HostRow, HostView};
use fdguard_core::snapshot::{Ceilings, Limits, Tier};
use fdguard_core::workload::Workload;
use fdguard_core::{Gap, Pid, Text};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::by_wall;

/// Schema name of a sample of the whole machine.
pub const HOST_SCHEMA: &str = "fdguard.host/1";

/// The document of one look, the process nearest to its limit first. Without `growth`, or before
/// its second look, every `growth` is null.
#[must_use]
pub fn document<'a>(view: &'a HostView, growth: Option<&'a Growth>) -> HostDocument<'a> {
    HostDocument {
        schema: HOST_SCHEMA,
        taken_at: view.taken_at,
        tier: Tier::Radar,
        processes: Processes { view, growth },
        host: &view.host,
        gaps: &view.gaps,
    }
}

/// One look at the whole host, as serialised.
#[derive(Debug, Serialize)]
pub struct HostDocument<'a> {
    schema: &'static str,
    taken_at: Option<Timestamp>,
    tier: Tier,
    processes: Processes<'a>,
    host: &'a Ceilings,
    gaps: &'a [Gap],
}

#[derive(Debug)]
struct Processes<'a> {
    view: &'a HostView,
    growth: Option<&'a Growth>,
}

impl Serialize for Processes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = by_wall(&self.view.rows);
        serializer.collect_seq(rows.into_iter().map(|row| Process::new(row, self.growth)))
    }
}

#[derive(Serialize)]
struct Process<'a> {
    pid: Pid,
    ppid: Option<Pid>,
    start_ticks: Option<u64>,
    comm: &'a Text,
    uid: Option<u32>,
    zombie: bool,
    count: Option<u64>,
    limits: Limits,
    percent_of_soft: Option<f64>,
    table_size: Option<u64>,
    peak_band: Option<(u64, u64)>,
    crossed_1024: Option<bool>,
    nearest_wall: Option<Wall>,
    growth: Option<GrowthDocument>,
    workload: Option<&'a Workload>,
}

#[derive(Serialize)]
struct Wall {
    name: &'static str,
    at: u64,
    left: u64,
    eta_seconds: Option<u64>,
}

#[derive(Serialize)]
struct GrowthDocument {
    since_seconds: f64,
    delta: i64,
    per_minute: Option<f64>,
}

impl<'a> Process<'a> {
    fn new(row: &'a HostRow, growth: Option<&Growth>) -> Self {
        Self {
            pid: row.pid,
            ppid: row.ppid,
            start_ticks: row.start_ticks,
            comm: &row.comm,
            uid: row.uid,
            zombie: row.zombie,
            count: row.count,
            limits: row.limits,
            percent_of_soft: row.percent_of_soft(),
            table_size: row.table_size,
            peak_band: row.peak_band(),
            crossed_1024: row.crossed_1024(),
            nearest_wall: row.nearest_wall().map(|wall| Wall {
                name: wall.name,
                at: wall.at,
                left: wall.left,
                eta_seconds: growth
                    .and_then(|growth| growth.time_left(row))
                    .map(|left| left.as_secs()),
            }),
            growth: growth
                .and_then(|growth| growth.of_row(row))
                .map(|grown| GrowthDocument {
                    since_seconds: thousandths(grown.since.as_secs_f64()),
                    delta: grown.delta,
                    per_minute: grown.per_minute.map(thousandths),
                }),
            workload: row.workload.as_deref(),
        }
    }
}

/// Three decimals: the rest is clock noise.
fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::{Value, json};

    use super::document;
    use crate::tui::top::fixture;

    fn written(view: &fdguard_core::host::HostView) -> Value {
        serde_json::to_value(document(view, None)).unwrap()
    }

    #[test]
    fn the_process_nearest_to_its_wall_comes_first() {
        let (view, growth) = fixture::watched();
        let json = serde_json::to_value(document(&view, Some(&growth))).unwrap();
        assert_eq!(json["schema"], "fdguard.host/1");
        assert_eq!(json["taken_at"], "2026-11-15T09:00:00Z");
        let first = &json["processes"][0];
        assert_eq!(first["pid"], 4242);
        assert_eq!(first["limits"], json!({"soft": 1024, "hard": 4096}));
        assert_eq!(first["peak_band"], json!([512, 1023]));
        assert_eq!(
            first["nearest_wall"],
            json!({"name": "soft-limit", "at": 1024, "left": 26, "eta_seconds": 390})
        );
        assert_eq!(
            first["growth"],
            json!({"since_seconds": 180.0, "delta": 12, "per_minute": 4.0})
        );
    }

    #[test]
    fn unknown_is_null_and_never_zero() {
        let json = written(&fixture::view());
        let rows = json["processes"].as_array().unwrap();
        let hidden = rows.iter().find(|row| row["pid"] == 777).unwrap();
        for field in ["count", "percent_of_soft", "nearest_wall", "growth"] {
            assert_eq!(hidden[field], Value::Null, "{field}");
        }
        assert_eq!(json["gaps"][0]["what"], "count of 1 process");
    }

    #[test]
    fn two_thousand_rows_are_written_without_a_pause() {
        let view = fixture::crowd(2000);
        let start = Instant::now();
        let bytes = serde_json::to_vec(&document(&view, None)).unwrap();
        // Generous, since this also runs unoptimized on a busy machine: it guards against quadratic
        // time, not against a slow machine.
        assert!(start.elapsed().as_millis() < 500);
        assert!(bytes.len() > 2000 * 100);
    }
}
