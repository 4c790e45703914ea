//! Lists the user's allowances that matched nothing.

use std::io::Write;

use super::style::DIM;
use super::wrap;
use crate::terminal::sanitize_str;

/// Prints a line for each flag and entry that matched nothing.
pub(crate) fn write(out: &mut dyn Write, unused: &[String], width: usize) -> anyhow::Result<()> {
    for one in unused {
        let text = format!("  info: {one} matched nothing");
        for line in wrap::lines(&sanitize_str(&text), width, 0, 0) {
            writeln!(out, "{DIM}{line}{DIM:#}")?;
        }
    }
    Ok(())
}
