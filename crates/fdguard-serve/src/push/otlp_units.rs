//! Units of the metrics over OTLP, as UCUM writes them: what is counted is in braces. Pure.

/// The unit of a metric by its name in `/metrics`; `None` for a name that is not here.
pub(super) fn unit(name: &str) -> Option<&'static str> {
    let known = UNITS.iter().find(|(names, _)| names.contains(&name));
    known.map(|(_, unit)| *unit)
}

const UNITS: &[(&[&str], &str)] = &[
    (
        &[
            "fdguard_open_fds",
            "fdguard_top_open_fds",
            "fdguard_fd_limit",
            "fdguard_fds",
            "fdguard_process_open_fds",
            "fdguard_process_fd_limit",
            "fdguard_serve_open_fds",
        ],
        "{file_descriptor}",
    ),
    (
        &[
            "fdguard_fd_growth_per_second",
            "fdguard_top_fd_growth_per_second",
        ],
        "{file_descriptor}/s",
    ),
    (
        &[
            "fdguard_fd_usage_ratio",
            "fdguard_top_fd_usage_ratio",
            "fdguard_verdict",
            "fdguard_top_verdict",
            "fdguard_process_verdict",
        ],
        "1",
    ),
    (
        &[
            "fdguard_seconds_to_limit",
            "fdguard_serve_cpu_seconds_total",
            "fdguard_serve_children_cpu_seconds_total",
            "fdguard_serve_tick_seconds",
            "fdguard_serve_tick_cpu_seconds",
        ],
        "s",
    ),
    (
        &[
            "fdguard_serve_resident_memory_bytes",
            "fdguard_serve_history_bytes",
        ],
        "By",
    ),
    (
        &[
            "fdguard_processes",
            "fdguard_folded_processes",
            "fdguard_serve_watched_processes",
            "fdguard_serve_unwatched_processes",
            "fdguard_visible_processes",
        ],
        "{process}",
    ),
    (
        &[
            "fdguard_findings",
            "fdguard_folded_findings",
            "fdguard_serve_dropped_findings_total",
        ],
        "{finding}",
    ),
    (&["fdguard_folded_services"], "{service}"),
    (&["fdguard_restarts_total"], "{restart}"),
    (
        &[
            "fdguard_serve_ticks_total",
            "fdguard_serve_late_ticks_total",
        ],
        "{tick}",
    ),
    (&["fdguard_serve_deferred_looks_total"], "{look}"),
    (&["fdguard_serve_history_lost_rows_total"], "{row}"),
    (
        &[
            "fdguard_serve_deliveries_total",
            "fdguard_serve_dropped_deliveries_total",
        ],
        "{message}",
    ),
    (&["fdguard_serve_delivery_failures_total"], "{attempt}"),
    (&["fdguard_gaps"], "{gap}"),
];
