//! Drawings of a count over time, as SVG.

use std::fmt::Write as _;

use fdguard_core::evidence::{Curve, CurvePoint, Curves};
use fdguard_core::forecast::Forecast;
use fdguard_core::units;

use super::escape;
use super::scale::{counts, ticks};
use crate::report::doctor::within;
use crate::report::table::{family_name, thousands};

/// How many families are drawn: the others have few descriptors each.
const MOST_FAMILIES: usize = 12;

/// The area of a drawing, and its ranges of time and number.
struct Frame {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    from: f64,
    until: f64,
    highest: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        let span = (self.until - self.from).max(f64::MIN_POSITIVE);
        let share = ((at - self.from) / span).clamp(0.0, 1.0);
        self.left + share * (self.width - self.left - self.right)
    }

    fn y(&self, count: f64) -> f64 {
        let share = (count / self.highest.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        self.height - self.bottom - share * (self.height - self.top - self.bottom)
    }

    fn open(&self, title: &str, description: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" preserveAspectRatio=\"xMidYMid meet\">\n\
             <title>{}</title>\n<desc>{}</desc>\n",
            self.width,
            self.height,
            escape(title),
            escape(description),
        )
    }

    fn text(&self, (x, y): (f64, f64), class: &str, text: &str) -> String {
        format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n",
            escape(text)
        )
    }

    fn across(&self, count: f64, class: &str) -> String {
        let y = self.y(count);
        let (from, until) = (self.left, self.width - self.right);
        format!(
            "<line x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{until:.1}\" y2=\"{y:.1}\" class=\"{class}\"/>\n"
        )
    }

    fn counts_axis(&self, marks: &[f64]) -> String {
        let mut text = String::new();
        for mark in marks {
            text.push_str(&self.across(*mark, if *mark == 0.0 { "axis" } else { "grid" }));
            let place = (self.left - 6.0, self.y(*mark) + 4.0);
            text.push_str(&self.text(place, "label end", &grouped(*mark)));
        }
        text
    }

    /// Seconds since the watch began; the last mark that fits shows the unit.
    fn time_axis(&self) -> String {
        let mut text = String::new();
        let span = self.until - self.from;
        for mark in ticks(span, 6)
            .into_iter()
            .filter(|mark| *mark <= span * 1.0001)
        {
            let x = self.x(self.from + mark);
            let place = (x, self.height - self.bottom + 16.0);
            let label = if mark == 0.0 {
                "0 s".to_owned()
            } else {
                units::short_duration(mark)
            };
            text.push_str(&self.text(place, "label mid", &label));
        }
        text
    }

    /// The area under a curve and the curve itself: a count is valid until the next sample.
    fn curve(&self, curve: &Curve) -> String {
        let Some(first) = curve.points.first() else {
            return String::new();
        };
        let mut line = format!(
            "M{:.1} {:.1}",
            self.x(first.at),
            self.y(f64::from(first.max))
        );
        let mut last = first;
        for point in curve.points.iter().skip(1) {
            let x = self.x(point.at);
            let _infallible = write!(
                line,
                "L{x:.1} {:.1}L{x:.1} {:.1}",
                self.y(f64::from(last.max)),
                self.y(f64::from(point.max))
            );
            last = point;
        }
        let base = self.y(0.0);
        format!(
            "<path d=\"{line}L{:.1} {base:.1}L{:.1} {base:.1}Z\" class=\"area\"/>\n<path d=\"{line}\" class=\"line\"/>\n",
            self.x(last.at),
            self.x(first.at),
        )
    }
}

/// The extrapolated course.
struct Course {
    from: CurvePoint,
    /// Descriptors per second: most likely, lowest, highest.
    likely: f64,
    low: f64,
    high: f64,
    limit: f64,
}

impl Course {
    fn of(curve: &Curve, limit: &Forecast) -> Option<Self> {
        let from = *curve.points.last()?;
        let left = as_f64(limit.left?);
        let rate = |seconds: Option<f64>| seconds.filter(|s| *s > 0.0).map(|s| left / s);
        Some(Self {
            from,
            likely: rate(limit.eta_seconds)?,
            low: rate(limit.latest_seconds).unwrap_or(0.0),
            high: rate(limit.soonest_seconds).or(rate(limit.eta_seconds))?,
            limit: as_f64(limit.at),
        })
    }

    fn at(&self, per_second: f64, time: f64) -> f64 {
        (f64::from(self.from.max) + per_second * (time - self.from.at)).min(self.limit)
    }

    fn reaches_limit(&self, per_second: f64) -> f64 {
        self.from.at + (self.limit - f64::from(self.from.max)) / per_second.max(f64::MIN_POSITIVE)
    }

    /// The range between the slowest and the fastest course, and the most likely line in it.
    fn draw(&self, frame: &Frame) -> String {
        let edge = |rate: f64| -> Vec<(f64, f64)> {
            let knee = self.reaches_limit(rate).min(frame.until);
            [self.from.at, knee, frame.until]
                .map(|time| (time, self.at(rate, time)))
                .to_vec()
        };
        let path = |points: &[(f64, f64)]| -> String {
            let mut text = String::new();
            for (index, (time, count)) in points.iter().enumerate() {
                let letter = if index == 0 { 'M' } else { 'L' };
                let _infallible =
                    write!(text, "{letter}{:.1} {:.1}", frame.x(*time), frame.y(*count));
            }
            text
        };
        let mut band = edge(self.high);
        band.extend(edge(self.low).into_iter().rev());
        let knee = self.reaches_limit(self.likely).min(frame.until);
        let middle = [
            (self.from.at, self.at(self.likely, self.from.at)),
            (knee, self.at(self.likely, knee)),
        ];
        format!(
            "<path d=\"{}Z\" class=\"band\"/>\n<path d=\"{}\" class=\"course\"/>\n",
            path(&band),
            path(&middle)
        )
    }
}

/// All descriptors, with the soft limit and the extrapolated course.
pub(super) fn total(curves: &Curves, limit: Option<&Forecast>) -> String {
    let curve = &curves.total;
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else {
        return String::new();
    };
    let watched = (last.at - first.at).max(0.1);
    let course = limit.and_then(|limit| Course::of(curve, limit));
    // Draw up to the limit if it is near, else somewhat beyond the watch.
    let until = course.as_ref().map_or(last.at, |course| {
        let end = course.reaches_limit(course.likely) + 0.1 * watched;
        if end <= last.at + 3.0 * watched {
            end
        } else {
            last.at + 0.6 * watched
        }
    });
    let ahead = course
        .as_ref()
        .map_or(0.0, |course| course.at(course.high, until));
    let seen = f64::from(curve.highest()).max(ahead);
    let limit_at = limit.map(|limit| as_f64(limit.at));
    let shows_limit = limit_at.is_some_and(|at| at <= 2.5 * seen);
    let highest = limit_at
        .filter(|_| shows_limit)
        .map_or(seen, |at| seen.max(at));
    let marks = counts(to_count(1.1 * highest), 4);
    let frame = Frame {
        width: 760.0,
        height: 280.0,
        left: 58.0,
        right: 16.0,
        top: 22.0,
        bottom: 28.0,
        from: first.at,
        until,
        highest: marks.last().copied().unwrap_or(1.0),
    };
    let mut svg = frame.open("descriptors over time", &description(curve, limit));
    svg.push_str(&frame.counts_axis(&marks));
    svg.push_str(&frame.time_axis());
    if let Some(course) = &course {
        svg.push_str(&course.draw(&frame));
        let x = frame.x(last.at);
        let (top, base) = (frame.top, frame.height - frame.bottom);
        let _infallible = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{base:.1}\" class=\"now\"/>"
        );
        svg.push_str(&frame.text((x + 5.0, top - 6.0), "label", "at the current rate"));
    }
    svg.push_str(&frame.curve(curve));
    svg.push_str(&limit_line(&frame, limit_at, shows_limit));
    svg.push_str("</svg>\n");
    format!(
        "<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
        escape(&description(curve, limit))
    )
}

fn limit_line(frame: &Frame, at: Option<f64>, is_shown: bool) -> String {
    let Some(at) = at else { return String::new() };
    let name = format!("soft limit {}", grouped(at));
    if !is_shown {
        let place = (frame.left + 6.0, frame.top - 6.0);
        return frame.text(
            place,
            "label limit-name",
            &format!("↑ {name}, above this chart"),
        );
    }
    let place = (frame.left + 6.0, frame.y(at) - 5.0);
    frame.across(at, "limit") + &frame.text(place, "label limit-name", &name)
}

fn description(curve: &Curve, limit: Option<&Forecast>) -> String {
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else {
        return "no samples".to_owned();
    };
    let mut text = format!(
        "{} descriptors in the first sample, {} after {}",
        thousands(first.max.into()),
        thousands(last.max.into()),
        units::duration(last.at - first.at),
    );
    let Some(limit) = limit else { return text };
    let _infallible = write!(text, "; the soft limit is {}", thousands(limit.at));
    if let Some(eta) = limit.eta_seconds {
        let _infallible = write!(text, " and is reached in {}", units::duration(eta));
        if let Some(range) = within(limit.soonest_seconds, limit.latest_seconds) {
            let _infallible = write!(text, " ({range}: the shaded area)");
        }
    }
    text
}

/// Each family in a small picture with its own scale, so that growth shows beside large numbers.
pub(super) fn families(curves: &Curves) -> String {
    let shown: Vec<_> = curves.families.iter().take(MOST_FAMILIES).collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut text = "<div class=\"small\">\n".to_owned();
    for family in shown {
        let name = family_name(&family.class);
        text.push_str(&small(&name, &family.curve));
    }
    text.push_str("</div>\n");
    let left = curves.families.len().saturating_sub(MOST_FAMILIES);
    if left > 0 {
        let _infallible = writeln!(text, "<p class=\"about\">and {left} more classes</p>");
    }
    text
}

fn small(name: &str, curve: &Curve) -> String {
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else {
        return String::new();
    };
    let marks = counts(curve.highest() + 1, 2);
    let highest = marks.last().copied().unwrap_or(1.0);
    let frame = Frame {
        width: 230.0,
        height: 92.0,
        left: 40.0,
        right: 8.0,
        top: 8.0,
        bottom: 8.0,
        from: first.at,
        until: last.at,
        highest,
    };
    let moved = i64::from(last.max) - i64::from(first.max);
    let change = match moved {
        0 => "unchanged".to_owned(),
        _ => format!("{moved:+}"),
    };
    let caption = format!("{name}: {} ({change})", thousands(last.max.into()));
    let mut svg = frame.open(name, &caption);
    svg.push_str(&frame.counts_axis(&[0.0, highest]));
    svg.push_str(&frame.curve(curve));
    svg.push_str("</svg>\n");
    let class = if moved > 0 { " class=\"rises\"" } else { "" };
    format!(
        "<figure{class}>\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
        escape(&caption)
    )
}

fn grouped(count: f64) -> String {
    thousands(u64::from(to_count(count)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what fits"
)]
fn to_count(count: f64) -> u32 {
    count.ceil().clamp(0.0, f64::from(u32::MAX)) as u32
}

#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
