//! Text in columns.

use fdguard_core::units::plural;
use fdguard_core::{Class, TcpState};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::terminal::sanitize_str;

/// Alignment of a cell in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For text.
    Left,
    /// Numbers.
    Right,
}

/// The name of a class, sanitized: the raw name of an unknown kind is untrusted.
#[must_use]
pub fn class_name(class: &Class) -> String {
    sanitize_str(&class.to_string()).into_owned()
}

/// The same for a family: connections of every state are one.
#[must_use]
pub fn family_name(family: &Class) -> String {
    match family {
        Class::Tcp(TcpState::Unknown) => "tcp".to_owned(),
        other => class_name(other),
    }
}

/// Lays out rows in columns, two spaces apart. With a width, the last column is cut to fit; without
/// one nothing is cut.
#[must_use]
pub fn columns(rows: &[Vec<String>], sides: &[Side], width: Option<usize>) -> Vec<String> {
    let widths: Vec<usize> = (0..sides.len())
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.width())
                .max()
                .unwrap_or(0)
        })
        .collect();
    rows.iter()
        .map(|row| line(row, sides, &widths, width))
        .collect()
}

fn line(row: &[String], sides: &[Side], widths: &[usize], width: Option<usize>) -> String {
    let mut line = String::new();
    let mut used = 0;
    for (column, cell) in row.iter().enumerate() {
        if column > 0 {
            line.push_str("  ");
            used += 2;
        }
        let is_last = column + 1 == row.len();
        let shown = match width {
            Some(width) if is_last => cut(cell, width.saturating_sub(used)),
            _ => cell.clone(),
        };
        let padding = widths
            .get(column)
            .copied()
            .unwrap_or(0)
            .saturating_sub(shown.width());
        match sides.get(column) {
            Some(Side::Right) => {
                line.push_str(&" ".repeat(padding));
                line.push_str(&shown);
            }
            _ => {
                line.push_str(&shown);
                if !is_last {
                    line.push_str(&" ".repeat(padding));
                }
            }
        }
        used += shown.width() + padding;
    }
    line
}

/// Cuts in the middle, where paths differ least.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let head = take(text.chars(), room / 2);
    let tail: String = take(text.chars().rev(), room - room / 2)
        .chars()
        .rev()
        .collect();
    format!("{head}…{tail}")
}

fn take(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|character| {
            used += character.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// A number and its noun: `1 child`, `5 children`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {}", thousands(number), plural(number, noun))
}

/// The same if it may be unknown.
#[must_use]
pub fn known(number: Option<u64>) -> String {
    number.map_or_else(|| "?".to_owned(), thousands)
}

/// A number with thousands separators: 523290 as `523,290`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Side, columns, cut, thousands};

    #[test]
    fn numbers_stand_right_and_wide_characters_count_twice() {
        let rows = vec![
            vec!["1".to_owned(), "日本".to_owned(), "x".to_owned()],
            vec!["100".to_owned(), "ab".to_owned(), "y".to_owned()],
        ];
        let lines = columns(&rows, &[Side::Right, Side::Left, Side::Left], None);
        assert_eq!(lines, ["  1  日本  x", "100  ab    y"]);
    }

    #[test]
    fn long_text_is_cut_in_the_middle_only_when_there_is_a_width() {
        assert_eq!(cut("/var/lib/something/state.db", 13), "/var/l…ate.db");
        assert_eq!(cut("short", 13), "short");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
